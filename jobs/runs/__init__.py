"""A run as it is stored: its folder, record, starts and bill, and its tables in bounded memory."""
