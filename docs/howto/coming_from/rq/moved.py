"""What becomes of the functions of RQ."""

from after import send_mail

JOBS = {"before.send_mail": send_mail}
