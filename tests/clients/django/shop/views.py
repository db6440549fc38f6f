"""The shop's pages: most read or write a few rows in a transaction, some stream a table by a cursor of the server."""

import json

from django.db import connection, transaction
from django.db.models import Avg, Count, F, Sum
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from .models import Line, Order, Product


def products(request):
    """A page of the list."""
    first = int(request.GET["first"])
    page = Product.objects.order_by("name")[first : first + 20]
    return JsonResponse({"products": [product.name for product in page], "count": Product.objects.count()})


@csrf_exempt
def order(request):
    """Locks what is ordered, in the order of its keys, and takes it from the stock; a savepoint undoes what is not to be had."""
    wanted = json.loads(request.body)
    names = sorted(wanted["products"])
    with transaction.atomic():
        placed = Order.objects.create(customer=wanted["customer"])
        for product in Product.objects.select_for_update().filter(name__in=names).order_by("id"):
            Line.objects.create(order=placed, product=product, quantity=1)
            Product.objects.filter(id=product.id).update(stock=F("stock") - 1)
        try:
            with transaction.atomic():
                Product.objects.filter(name__in=names).update(stock=0)
                raise LookupError("not to be had")
        except LookupError:
            pass
    return JsonResponse({"lines": placed.lines.count()})


def export(request):
    """Outside of a transaction: Django declares a cursor WITH HOLD, reads it piece by piece and closes it."""

    def rows():
        for number, product in enumerate(Product.objects.order_by("id").iterator(chunk_size=100)):
            if number % 100 == 0:  # something else in between, on the same connection
                yield f"{Product.objects.filter(price__lt=product.price).count()} cheaper\n"
            yield f"{product.name}\n"

    return StreamingHttpResponse(rows())


@transaction.atomic
def report(request):
    """In a transaction that reads: here the cursor needs no HOLD."""
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
    names = [product.name for product in Product.objects.order_by("-name").iterator(chunk_size=50)]
    about = Product.objects.aggregate(count=Count("id"), price=Avg("price"))
    return JsonResponse({"first": names[-1], "last": names[0], **about})


def slow(request):
    """A page with a longer limit than the others, and a table of its own in between."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '50s'")
        cursor.execute("CREATE TEMPORARY TABLE sums AS SELECT customer, count(*) AS orders FROM shop_order GROUP BY customer")
        cursor.execute("SELECT orders FROM sums WHERE customer = %s", [request.GET["customer"]])
        (orders,) = cursor.fetchone()
        cursor.execute("DROP TABLE sums")
        limit = shown(cursor)
        cursor.execute("RESET statement_timeout")
        return HttpResponse(f"{orders} orders within {limit}, others within {shown(cursor)}")


def shown(cursor):
    cursor.execute("SHOW statement_timeout")
    return cursor.fetchone()[0]


def totals():
    """What all requests together have left."""
    return {
        "orders": Order.objects.count(),
        "lines": Line.objects.count(),
        "stock": Product.objects.aggregate(Sum("stock"))["stock__sum"],
        "customers": list(Order.objects.values_list("customer").annotate(Count("id")).order_by("customer")),
    }


urlpatterns = [path(view.__name__, view) for view in (products, order, export, report, slow)]
