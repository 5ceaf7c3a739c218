"""Something to sell."""

from django.db import models


class Book(models.Model):
    title = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.title


class Edition(models.Model):
    pk = models.CompositePrimaryKey("isbn", "number")
    isbn = models.CharField(max_length=13)
    number = models.IntegerField()
