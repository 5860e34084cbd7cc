"""What can be measured on this machine. No check changes anything, and none needs a right that the user lacks."""
