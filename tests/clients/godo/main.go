// DigitalOcean's own client in the hands of a stranger: its pools are Weir's. Does one thing, and prints what godo made of the answers. Never knows an address of the API itself.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/digitalocean/godo"
)

func main() {
	if len(os.Args) < 5 {
		fail("usage: check URL TOKEN {clusters|list|get|create|update|delete} CLUSTER [NAME [DB USER MODE SIZE]]")
	}
	address, token, what, cluster, rest := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5:]
	base, err := url.Parse(address)
	check(err)
	client := godo.NewFromToken(token)
	client.BaseURL = base
	patience, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	run(patience, client, what, cluster, rest)
}

func run(wait context.Context, client *godo.Client, what, cluster string, rest []string) {
	size := func() int {
		var number int
		_, err := fmt.Sscan(rest[4], &number)
		check(err)
		return number
	}
	switch what {
	case "clusters":
		found, _, err := client.Databases.List(wait, nil)
		check(err)
		show(found)
	case "list":
		found, answer, err := client.Databases.ListPools(wait, cluster, nil)
		check(err)
		if answer.Rate.Limit == 0 || answer.Rate.Reset.IsZero() {
			fail("no limit of requests in the headers")
		}
		show(found)
	case "get":
		found, _, err := client.Databases.GetPool(wait, cluster, rest[0])
		check(err)
		show(found)
	case "create":
		wish := &godo.DatabaseCreatePoolRequest{Name: rest[0], Database: rest[1], User: rest[2], Mode: rest[3], Size: size()}
		made, _, err := client.Databases.CreatePool(wait, cluster, wish)
		check(err)
		show(made)
	case "update":
		wish := &godo.DatabaseUpdatePoolRequest{Database: rest[1], User: rest[2], Mode: rest[3], Size: size()}
		_, err := client.Databases.UpdatePool(wait, cluster, rest[0], wish)
		check(err)
	case "delete":
		_, err := client.Databases.DeletePool(wait, cluster, rest[0])
		check(err)
	default:
		fail("what is " + what + "?")
	}
}

// show prints what godo understood.
func show(what interface{}) {
	check(json.NewEncoder(os.Stdout).Encode(what))
}

// check ends with 1 and, for an answer of the API, its status, message and request id.
func check(err error) {
	if err == nil {
		return
	}
	if refused, ok := err.(*godo.ErrorResponse); ok {
		fail(fmt.Sprintf("%d %s (%s)", refused.Response.StatusCode, refused.Message, refused.RequestID))
	}
	fail(err.Error())
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(1)
}
