"""``limpyd-jobs top`` on a terminal with a keyboard: pages of rows, to look at and to act on."""
