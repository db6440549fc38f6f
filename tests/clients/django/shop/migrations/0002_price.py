"""A column for rows that are there already: the data are changed between two changes of the table."""

from django.db import migrations, models


def fill(apps, _):
    product = apps.get_model("shop", "Product")
    product.objects.bulk_create(product(name=f"product {number:03}", stock=1000, price=number) for number in range(300))
    product.objects.filter(price=None).update(price=0)


class Migration(migrations.Migration):
    atomic = False  # PostgreSQL refuses to alter a table with pending trigger events
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.AddField("Product", "price", models.DecimalField(decimal_places=2, max_digits=8, null=True)),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AlterField("Product", "price", models.DecimalField(decimal_places=2, max_digits=8)),
    ]
