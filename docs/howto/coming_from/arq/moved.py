"""What becomes of the functions of arq, which it knows by their names."""

from after import send_mail

JOBS = {"send_mail": send_mail}
