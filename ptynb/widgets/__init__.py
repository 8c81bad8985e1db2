"""What a notebook shows: the only importer of elements."""

from ptynb.widgets.kernel_messages import keep_messages

keep_messages()
