"""What every algorithm and every environment shares: types, run folders, buffers, returns."""
