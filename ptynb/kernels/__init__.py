"""Code compiled for a CPU: loops over pixels, Fourier transforms, and the threads that run them."""
