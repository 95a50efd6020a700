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
    {{- if hasKey $serve "authorization" -}}
      {{- fail (printf "config.identities: %s: leave serve.authorization out, a ConfigMap is no place for a secret: the agent makes one, or name a Secret in authorizations.%s.secret" $identity.name $identity.name) -}}
    {{- end -}}
    {{- if include "workload-identity-agent.authorized" (dict "agent" $ "identity" $identity) -}}
      {{- $_ := set $serve "authorization" (printf "${%s}" (include "workload-identity-agent.authorizationVariable" $identity.name)) -}}
    {{- end -}}
    {{- $_ := set $identity "serve" $serve -}}
  {{- end -}}
  {{- $identities = append $identities $identity -}}
{{- end -}}
{{- $_ := set $config "identities" $identities -}}
{{- range $name, $_ := .Values.authorizations -}}
  {{- $served := false -}}
  {{- range $identities -}}
    {{- if and (eq .name $name) (dig "serve" "authorization" "" .) -}}{{- $served = true -}}{{- end -}}
  {{- end -}}
  {{- if not $served -}}
    {{- fail (printf "authorizations.%s: no identity of that name is served as container, appservice or uri" $name) -}}
  {{- end -}}
{{- end -}}
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

{{/*
"true" where an identity's authorization comes through the environment: from the Secret that `authorizations` names, or the pod's UID. Else the
agent makes one and stores it beside the identity's files. The argument holds `agent` and `identity`.
*/}}
{{- define "workload-identity-agent.authorized" -}}
{{- $name := .identity.name -}}
{{- $given := get (.agent.Values.authorizations | default dict) $name | default dict -}}
{{- $dialects := dig "serve" "dialects" list .identity -}}
{{- $fromEnvironment := or (has "appservice" $dialects) (has "uri" $dialects) -}}
{{- if and $given.secret $given.podUid -}}
{{- fail (printf "authorizations.%s: choose one of secret and podUid" $name) -}}
{{- else if and $given.podUid (has "container" $dialects) -}}
{{- fail (printf "authorizations.%s: podUid is for appservice and uri: AWS SDKs read a file that the agent makes: leave it out" $name) -}}
{{- else if and $fromEnvironment (not $given.secret) (not $given.podUid) -}}
{{- fail (printf "config.identities: %s: its SDKs take the authorization from the environment: name the Secret that holds it in authorizations.%s.secret, or set authorizations.%s.podUid: true, which every container of the pod can read" $name $name $name) -}}
{{- else if and (has "container" $dialects) (not .identity.sinks) (not $given.secret) -}}
{{- fail (printf "config.identities: %s: its authorization is stored beside its files and sinks is empty: leave sinks out, or name a Secret in authorizations.%s.secret" $name $name) -}}
{{- else if and (or $fromEnvironment (has "container" $dialects)) (or $given.secret $given.podUid) -}}
true
{{- end -}}
{{- end }}

{{/* The environment variable with one identity's authorization (the argument is its name); no two names share one. */}}
{{- define "workload-identity-agent.authorizationVariable" -}}
{{- $suffix := contains "." . | ternary (printf "_%s" (sha256sum . | trunc 8)) "" -}}
{{- printf "WI_AUTHORIZATION_%s%s" . $suffix | upper | replace "." "_" | replace "-" "_" -}}
{{- end }}

{{/* Where its value comes from, as a variable's `valueFrom`; the argument holds `agent` and `name`. */}}
{{- define "workload-identity-agent.authorizationSource" -}}
{{- $given := get .agent.Values.authorizations .name -}}
{{- if $given.secret -}}
{secretKeyRef: {name: {{ $given.secret | quote }}, key: {{ $given.key | default "authorization" | quote }}}}
{{- else -}}
{fieldRef: {fieldPath: metadata.uid}}
{{- end -}}
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

{{/* The metadata endpoint's ports, with commas between: a service mesh has to leave them alone. */}}
{{- define "workload-identity-agent.metadataPorts" -}}
{{- $ports := list -}}
{{- range dig "metadata" "listen" (list "127.0.0.1:9481") .Values.config -}}
{{- if not (hasPrefix "unix:" .) -}}{{- $ports = append $ports (regexFind "[0-9]+$" .) -}}{{- end -}}
{{- end -}}
{{- range .Values.config.identities -}}
{{- with dig "serve" "port" nil . -}}{{- $ports = append $ports (printf "%d" (int .)) -}}{{- end -}}
{{- end -}}
{{- $ports | uniq | join "," -}}
{{- end }}

{{/* Where SDKs in the pod ask: the first address that is not a socket file. */}}
{{- define "workload-identity-agent.metadataAddress" -}}
{{- $found := list -}}
{{- range dig "metadata" "listen" (list "127.0.0.1:9481") .Values.config -}}
{{- if not (hasPrefix "unix:" .) -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- first $found | required "config.metadata.listen: add a TCP address: SDKs use no socket files" -}}
{{- end }}
