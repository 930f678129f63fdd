"""The scheduler half: which branches there are, what they hold in the radix cache, who yields to whom."""
