"""The tables, as Django's makemigrations writes them."""

import django.db.models.deletion
from django.db import migrations, models

KEY = ("id", models.BigAutoField(primary_key=True))


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            "Product",
            [KEY, ("name", models.CharField(max_length=40, unique=True)), ("stock", models.IntegerField())],
        ),
        migrations.CreateModel(
            "Order",
            [KEY, ("customer", models.CharField(db_index=True, max_length=40)), ("placed", models.DateTimeField(auto_now_add=True))],
        ),
        migrations.CreateModel(
            "Line",
            [
                KEY,
                ("quantity", models.IntegerField()),
                ("order", models.ForeignKey("shop.Order", django.db.models.deletion.CASCADE, related_name="lines")),
                ("product", models.ForeignKey("shop.Product", django.db.models.deletion.PROTECT)),
            ],
        ),
    ]
