{{/* The agent's configuration: the values, with what follows from being in this pod. */}}

{{- define "workload-identity-agent.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $identities := list -}}
{{- range $identity := $config.identities -}}
  {{- $serve := $identity.serve | default dict -}}
  {{- if not (hasKey $identity "source") -}}
    {{- $_ := set $identity "source" (dict "type" "file" "path" (printf "/var/run/secrets/wi-agent-tokens/%s/token" $identity.name)) -}}
  {{- end -}}
  {{- $directory := printf "/var/run/secrets/wi-agent/%s" $identity.name -}}
  {{- if not (hasKey $identity "sinks") -}}
    {{- $_ := set $identity "sinks" (list (dict "type" "files" "directory" (printf "%s/files" $directory))) -}}
  {{- end -}}
  {{- range $sink := $identity.sinks -}}
    {{- if and (eq $sink.type "files") (not (hasPrefix (printf "%s/" $directory) $sink.directory)) -}}
      {{- fail (printf "config.identities: %s: the files sink's directory has to lie below %s, where its volume is mounted" $identity.name $directory) -}}
    {{- end -}}
  {{- end -}}
  {{- if $serve.dialects -}}
    {{- if not (hasKey $serve "authorization") -}}
      {{- $_ := set $serve "authorization" "${WI_AUTHORIZATION}" -}}
    {{- else if ne $serve.authorization "${WI_AUTHORIZATION}" -}}
      {{- fail (printf "config.identities: %s: leave serve.authorization out: it would lie in a ConfigMap, and the pod's UID is used in its place" $identity.name) -}}
    {{- end -}}
    {{- $_ := set $identity "serve" $serve -}}
  {{- end -}}
  {{- $identities = append $identities $identity -}}
{{- end -}}
{{- $_ := set $config "identities" $identities -}}
{{- with $config.issuer -}}
  {{- if not $.Values.issuerKeys.secret -}}
    {{- fail "config.issuer: each pod would make keys of its own, which nobody trusts and which end with it: name the Secret that holds the issuer's in issuerKeys.secret" -}}
  {{- end -}}
  {{- if or (hasKey . "state") (hasKey . "readOnly") -}}
    {{- fail "config.issuer: leave state and readOnly out: the keys are read from where issuerKeys.secret is mounted" -}}
  {{- end -}}
  {{- $_ := set . "state" "/var/run/secrets/wi-agent-issuer" -}}
  {{- $_ := set . "readOnly" true -}}
{{- else -}}
  {{- if $.Values.issuerKeys.secret -}}
    {{- fail "issuerKeys.secret: nothing signs with these keys: say config.issuer too, or leave them out" -}}
  {{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}

{{/* One identity of it; the argument holds `agent` and `identity`. */}}
{{- define "workload-identity-agent.identity" -}}
{{- $found := dict -}}
{{- range (include "workload-identity-agent.config" .agent | fromYaml).identities -}}
  {{- if eq .name $.identity -}}{{- $found = . -}}{{- end -}}
{{- end -}}
{{- if not $found -}}
  {{- fail (printf "there is no identity %q in config.identities" .identity) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* For whom the pod's token is projected; the argument is the identity. */}}
{{- define "workload-identity-agent.audience" -}}
{{- $known := dict "aws" "sts.amazonaws.com" "azure" "api://AzureADTokenExchange" "alibaba" "sts.aliyuncs.com" -}}
{{- if .provider.audiences -}}
{{- first .provider.audiences -}}
{{- else if and (eq .provider.type "gcp") .provider.workloadIdentityProvider -}}
{{- printf "https://iam.googleapis.com/%s" .provider.workloadIdentityProvider -}}
{{- else -}}
{{- get $known .provider.type | required (printf "config.identities: %s: state the provider's audiences, or a source" .name) -}}
{{- end -}}
{{- end }}

{{/* A length of time as the agent reads it, in seconds. */}}
{{- define "workload-identity-agent.seconds" -}}
{{- mul (regexFind "^[0-9]+" . | int) (get (dict "s" 1 "m" 60 "h" 3600 "d" 86400) (regexFind "[smhd]$" .) | default 0) -}}
{{- end }}

{{/* The port that the kubelet and Prometheus ask. */}}
{{- define "workload-identity-agent.adminPort" -}}
{{- $listen := first (dig "admin" "listen" (list ":9480") .Values.config) -}}
{{- if regexMatch "^(127\\.|localhost:|\\[::1\\]|unix:)" $listen -}}
{{- fail (printf "config.admin.listen: %s: the kubelet's probes come from outside of the pod: write :9480" $listen) -}}
{{- end -}}
{{- regexFind "[0-9]+$" $listen -}}
{{- end }}

{{/* Where SDKs in the pod ask: the first address that is no socket file. */}}
{{- define "workload-identity-agent.metadataAddress" -}}
{{- $found := list -}}
{{- range dig "metadata" "listen" (list "127.0.0.1:9481") .Values.config -}}
{{- if not (hasPrefix "unix:" .) -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- first $found | required "config.metadata.listen: add a TCP address: SDKs use no socket files" -}}
{{- end }}
