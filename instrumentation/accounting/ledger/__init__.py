"""What calls cost, with paging and without."""
