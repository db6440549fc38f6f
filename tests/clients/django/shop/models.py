"""What the shop sells, and to whom."""

from django.db import models


class Product(models.Model):
    name = models.CharField(max_length=40, unique=True)
    stock = models.IntegerField()
    price = models.DecimalField(max_digits=8, decimal_places=2)


class Order(models.Model):
    customer = models.CharField(max_length=40, db_index=True)
    placed = models.DateTimeField(auto_now_add=True)


class Line(models.Model):
    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, models.PROTECT)
    quantity = models.IntegerField()
