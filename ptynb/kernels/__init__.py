"""What runs compiled on a CPU: loops over pixels, Fourier transforms between them, and the threads that share both."""
