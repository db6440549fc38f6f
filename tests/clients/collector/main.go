// The OpenTelemetry Collector's own receiver of OTLP: takes metrics and traces as any collector does, and prints a line of JSON for each batch: what the
// metrics are called in Prometheus by the Collector's own translation, what headers came with them, and the batch itself; or the traces.
// Never judges anything.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/translator/prometheus"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/featuregate"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// A batch as it is printed.
type batch struct {
	Names         map[string]string `json:"names"`
	Authorization []string          `json:"authorization"`
	Data          json.RawMessage   `json:"data"`
}

func main() {
	if len(os.Args) != 2 && len(os.Args) != 4 {
		fail("usage: check HOST:PORT [CERTIFICATE KEY]")
	}
	// The names that later versions give unless told otherwise.
	check(featuregate.GlobalRegistry().Set("pkg.translator.prometheus.NormalizeName", true))
	http := map[string]any{"endpoint": os.Args[1], "include_metadata": true}
	if len(os.Args) == 4 {
		http["tls"] = map[string]any{"cert_file": os.Args[2], "key_file": os.Args[3]}
	}
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	said := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{"http": http}})
	check(component.UnmarshalConfig(said, config))
	taker, err := consumer.NewMetrics(take)
	check(err)
	receiver, err := factory.CreateMetricsReceiver(context.Background(), receivertest.NewNopCreateSettings(), config, taker)
	check(err)
	traces, err := consumer.NewTraces(takeTraces)
	check(err)
	// The factory has one receiver for a configuration, whatever it takes.
	_, err = factory.CreateTracesReceiver(context.Background(), receivertest.NewNopCreateSettings(), config, traces)
	check(err)
	check(receiver.Start(context.Background(), componenttest.NewNopHost()))
	fmt.Println(`{"ready": true}`)
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	<-end
	check(receiver.Shutdown(context.Background()))
}

func take(request context.Context, metrics pmetric.Metrics) error {
	data, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(metrics)
	check(err)
	names := map[string]string{}
	resources := metrics.ResourceMetrics()
	for r := 0; r < resources.Len(); r++ {
		scopes := resources.At(r).ScopeMetrics()
		for s := 0; s < scopes.Len(); s++ {
			all := scopes.At(s).Metrics()
			for m := 0; m < all.Len(); m++ {
				names[all.At(m).Name()] = prometheus.BuildCompliantName(all.At(m), "", true)
			}
		}
	}
	info := client.FromContext(request)
	line, err := json.Marshal(batch{names, info.Metadata.Get("authorization"), data})
	check(err)
	_, err = fmt.Println(string(line))
	return err
}

func takeTraces(_ context.Context, traces ptrace.Traces) error {
	data, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	check(err)
	_, err = fmt.Println(string(data))
	return err
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(1)
}
