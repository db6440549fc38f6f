{{- define "weir.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The Secret of the user list, and that of the panel. */}}
{{- define "weir.secret" -}}
{{ .Values.existingSecret | default (include "weir.fullname" .) }}
{{- end }}
{{- define "weir.panelSecret" -}}
{{ .Values.panel.existingSecret | default (printf "%s-panel" (include "weir.fullname" .)) }}
{{- end }}

{{/* Not empty where it is known who may use the panel. */}}
{{- define "weir.hasPanel" -}}
{{ if or .Values.panel.auth .Values.panel.existingSecret }}yes{{ end }}
{{- end }}

{{/* The time in which a pod ends. The next one is replaced no earlier: minReadySeconds is the same. */}}
{{- define "weir.endSeconds" -}}
{{ add .Values.drain.delaySeconds .Values.drain.clientsSeconds .Values.drain.transactionsSeconds 10 }}
{{- end }}

{{/* So many run at the same time at most: while an update rolls, one that starts and one that ends besides those that are wanted. */}}
{{- define "weir.mostPods" -}}
{{ add 2 (ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled) }}
{{- end }}

{{/* A number as people write it: JSON has made 1000000 a float. */}}
{{- define "weir.text" -}}
{{- if kindIs "float64" . }}{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ toString . }}{{ end }}{{ else if kindIs "bool" . }}{{ ternary 1 0 . }}{{ else }}{{ toString . }}{{ end -}}
{{- end }}

{{/* What would begin a line of its own is refused. A list of where it is and what it is. */}}
{{- define "weir.oneLine" -}}
{{- $text := include "weir.text" (index . 1) }}
{{- if regexMatch "[\\r\\n]" $text }}{{ fail (printf "%s: a line break is not possible" (index . 0)) }}{{ end -}}
{{ $text }}
{{- end }}

{{/* A name of an entry: in double quotes unless it is plain. */}}
{{- define "weir.name" -}}
{{- $name := index . 1 }}
{{- if regexMatch "[\\r\\n]" $name }}{{ fail (printf "%s: a line break in a name is not possible" (index . 0)) }}{{ end -}}
{{- if or (eq $name "*") (regexMatch "^[A-Za-z0-9_.-]+$" $name) }}{{ $name }}{{ else }}"{{ $name | replace "\"" "\"\"" }}"{{ end }}
{{- end }}

{{/* The keys of an entry: values in single quotes, which are doubled within. */}}
{{- define "weir.keys" -}}
{{- $where := index . 0 }}
{{- range $key, $value := index . 1 }}
{{- if eq $key "password" }}{{ fail (printf "%s.password: passwords are in the user list (userlist or existingSecret)" $where) }}{{ end }}
{{- if not (regexMatch "^[a-z_]+$" $key) }}{{ fail (printf "%s.%s: no key of an entry has such a name" $where $key) }}{{ end }} {{ $key }}='{{ include "weir.oneLine" (list (printf "%s.%s" $where $key) $value) | replace "'" "''" }}'
{{- end }}
{{- end }}

{{/* weir.ini. Ports and paths are the same in all pods and all versions of a release: a pod that ends finds its process by them. */}}
{{- define "weir.ini" -}}
[databases]
{{- range $name, $keys := .Values.databases }}
{{ include "weir.name" (list "databases" $name) }} ={{ include "weir.keys" (list (printf "databases.%s" $name) $keys) }}
{{- end }}

[users]
{{- range $name, $keys := .Values.users }}
{{ include "weir.name" (list "users" $name) }} ={{ include "weir.keys" (list (printf "users.%s" $name) $keys) }}
{{- end }}

[pgbouncer]
listen_addr = *
listen_port = 6432
unix_socket_dir = /run/weir
auth_file = /etc/weir-secret/userlist.txt
http_port = 8432
{{- if include "weir.hasPanel" . }}
http_addr = 0.0.0.0
http_auth_file = /etc/weir-panel/panel.auth
http_metrics_open = {{ ternary 1 0 .Values.panel.metricsOpen }}
{{- end }}
{{- if .Values.tlsSecret }}
client_tls_cert_file = /etc/weir-tls/tls.crt
client_tls_key_file = /etc/weir-tls/tls.key
{{- if not (hasKey .Values.settings "client_tls_sslmode") }}
client_tls_sslmode = allow
{{- end }}
{{- end }}
{{- if .Values.fleet.enabled }}
fleet = kubernetes:////{{ include "weir.fullname" . }}
fleet_nodes = {{ include "weir.mostPods" . }}
{{- if not (hasKey .Values.settings "pools_file") }}
pools_file = /run/weir/pools.ini
{{- end }}
{{- end }}
{{- $own := list "listen_addr" "listen_port" "unix_socket_dir" "auth_file" "http_addr" "http_port" "http_auth_file" "http_metrics_open" "client_tls_cert_file" "client_tls_key_file" "pidfile" "logfile" "user" "conffile" }}
{{- if .Values.fleet.enabled }}{{ $own = concat $own (list "fleet" "fleet_nodes" "fleet_node" "fleet_address") }}{{ end }}
{{- range $name, $value := .Values.settings }}
{{- if has $name $own }}{{ fail (printf "settings.%s: the chart sets it itself" $name) }}{{ end }}
{{- if not (regexMatch "^[a-z_]+$" $name) }}{{ fail (printf "settings.%s: no setting has such a name" $name) }}{{ end }}
{{ $name }} = {{ include "weir.oneLine" (list (printf "settings.%s" $name) $value) }}
{{- end }}
{{- end }}

{{/* What cannot work is said before anything is installed. */}}
{{- define "weir.validate" -}}
{{- if not .Values.databases }}{{ fail "databases: name at least one, as shop: {host: postgres, dbname: shop}" }}{{ end }}
{{- if and .Values.userlist .Values.existingSecret }}{{ fail "userlist and existingSecret: give one of them" }}{{ end }}
{{- if and (not .Values.userlist) (not .Values.existingSecret) (ne (toString .Values.settings.auth_type) "any") }}{{ fail "userlist or existingSecret: without a user list no client can log in" }}{{ end }}
{{- if and .Values.fleet.enabled (not .Values.settings.fleet_user) (not .Values.settings.auth_user) }}
{{- range $name, $keys := .Values.databases }}{{ if not (or $keys.user $keys.auth_user) }}{{ fail (printf "settings.fleet_user: fleet.enabled needs a user of the user list that asks the servers of databases.%s for connections of pods that are gone" $name) }}{{ end }}{{ end }}
{{- end }}
{{- if and .Values.panel.auth .Values.panel.existingSecret }}{{ fail "panel.auth and panel.existingSecret: give one of them" }}{{ end }}
{{- if and .Values.serviceMonitor.enabled (not (include "weir.hasPanel" .)) }}{{ fail "serviceMonitor.enabled: metrics are served outside of the pod only with panel.auth or panel.existingSecret" }}{{ end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.panel.metricsOpen) (not .Values.serviceMonitor.tokenSecret) }}{{ fail "serviceMonitor.tokenSecret: needed where panel.metricsOpen is false" }}{{ end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}{{ fail "autoscaling: minReplicas is above maxReplicas" }}{{ end }}
{{- if and .Values.autoscaling.enabled (not (dig "requests" "cpu" "" .Values.resources)) }}{{ fail "resources.requests.cpu: autoscaling measures by it" }}{{ end }}
{{- end }}

{{/* What is said after installation. */}}
{{- define "weir.notes" -}}
{{- $pods := ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled }}
{{- $most := include "weir.mostPods" . }}
Weir serves {{ keys .Values.databases | sortAlpha | join ", " }} at {{ include "weir.fullname" . }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}.

{{- if .Values.fleet.enabled }}
Server connections: the pods share limits, and each user of a database has a pool; pool_size is all pods' together. See them: kubectl -n {{ .Release.Namespace }} exec deployment/{{ include "weir.fullname" . }} -- weir fleet
{{- else }}
Server connections: a pool_size is each pod's, and each user of a database has a pool; {{ $pods }} pods have up to {{ $pods }} times that, and up to {{ $most }} times while an update rolls: a pod that starts, and one that ends.
{{- range $name, $keys := .Values.databases }}
  {{ $name }}: {{ with $keys.pool_size | default $.Values.settings.default_pool_size | default 20 }}{{ if kindIs "string" . }}{{ . }}{{ else }}{{ mul . $pods }} ({{ mul . $most }}){{ end }}{{ end }} for one user
{{- end }}
{{- end }}
A pod ends within {{ include "weir.endSeconds" . }} s; no transaction that ends by then is interrupted. An update takes as long for each pod.
{{- with list .Values.tlsSecret .Values.existingSecret .Values.panel.existingSecret | compact }}
Pods read Secrets when they start. After a change of {{ join ", " . }}: kubectl -n {{ $.Release.Namespace }} rollout restart deployment/{{ include "weir.fullname" $ }}
{{- end }}
{{- if include "weir.hasPanel" . }}
The panel: kubectl -n {{ .Release.Namespace }} port-forward service/{{ include "weir.fullname" . }} 8432, then http://127.0.0.1:8432
{{- else }}
The panel is closed: panel.auth has who may use it (weir panel password NAME).
{{- end }}
{{- end }}
