"""What an export can be written as: a module for each format, which has its one `FORMAT`."""
