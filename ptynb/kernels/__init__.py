"""Code compiled for a CPU: loops over pixels, and the steps of the hot path made of them."""

import functools

from ptynb.kernels import runtime
from ptynb.private_folder import code_folder, private_folder
from ptynb.supervised_thread import SupervisedThread

# Files of compiled code are pickles: who can write to them runs code as this user.
runtime.folder_of_code = lambda name: private_folder(code_folder("NUMBA_CACHE_DIR") / name)
runtime.new_thread = functools.partial(SupervisedThread, restarts=True)
