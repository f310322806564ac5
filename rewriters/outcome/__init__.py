"""What the answers of a query lead to: failures and notes, and another try."""
