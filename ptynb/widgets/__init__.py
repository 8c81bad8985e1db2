"""What a notebook shows: the only importer of elements."""

from ptynb.widgets.kernel_messages import keep_order

keep_order()
