{{/*
What a pod needs to have the agent beside it. In a pod of your own chart, with this one as a dependency:

  {{- $agent := index .Subcharts "workload-identity-agent" }}
  metadata:
    annotations: {{- include "workload-identity-agent.podAnnotations" $agent | nindent 6 }}
  spec:
    automountServiceAccountToken: false
    securityContext: {{- include "workload-identity-agent.podSecurityContext" $agent | nindent 4 }}
    initContainers: {{- include "workload-identity-agent.initContainers" $agent | nindent 4 }}
    containers:
      {{- include "workload-identity-agent.containers" $agent | nindent 4 }}
      - name: app
        env: {{- include "workload-identity-agent.env" (dict "agent" $agent "identity" "app") | nindent 8 }}
        volumeMounts: {{- include "workload-identity-agent.mounts" (dict "agent" $agent "identity" "app") | nindent 8 }}
    volumes: {{- include "workload-identity-agent.volumes" $agent | nindent 4 }}

`initContainers` is the sidecar where the cluster has native ones, else nothing; `containers` the other way round, and before yours: they are started
when it is ready.
*/}}

{{- define "workload-identity-agent.initContainers" -}}
{{- if include "workload-identity-agent.native" . -}}
- {{ include "workload-identity-agent.sidecar" . | nindent 2 | trim }}
{{- end -}}
{{- end }}

{{- define "workload-identity-agent.containers" -}}
{{- if not (include "workload-identity-agent.native" .) -}}
- {{ include "workload-identity-agent.sidecar" . | nindent 2 | trim }}
{{- end -}}
{{- end }}

{{/* The change policy is for your own volumes: none of them is walked through at each start because of us. */}}
{{- define "workload-identity-agent.podSecurityContext" -}}
fsGroup: {{ .Values.fsGroup }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "workload-identity-agent.sidecar" -}}
{{- if .Values.hostNetwork -}}
{{- fail "hostNetwork: every process of the node could ask the metadata endpoint for credentials: the agent does not run there" -}}
{{- end -}}
name: wi-agent
image: {{ include "workload-identity-agent.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if include "workload-identity-agent.native" . }}
restartPolicy: Always
{{- end }}
args: [run, --log-level, {{ .Values.logging.level }}, --log-format, {{ .Values.logging.format }}]
{{- with include "workload-identity-agent.sidecarEnv" . }}
env: {{- . | trim | nindent 2 }}
{{- end }}
ports:
  - {name: wi-admin, containerPort: {{ include "workload-identity-agent.adminPort" . }}, protocol: TCP}
startupProbe:
  httpGet: {path: /readyz, port: wi-admin}
  {{- toYaml .Values.startupProbe | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: wi-admin}
  {{- toYaml .Values.livenessProbe | nindent 2 }}
{{- if not (include "workload-identity-agent.native" .) }}
# The kubelet starts a pod's containers one after the other, and waits for each one's hook.
lifecycle:
  postStart:
    exec:
      command: [wi-agent, -c, /etc/wi-agent/config.yaml, wait, --timeout, {{ include "workload-identity-agent.startupTimeout" . | quote }}]
{{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: wi-config, mountPath: /etc/wi-agent, readOnly: true}
  - {name: wi-run, mountPath: /run/wi-agent}
  {{- $config := include "workload-identity-agent.config" . | fromYaml }}
  {{- if include "workload-identity-agent.tokens" . }}
  - {name: wi-tokens, mountPath: /var/run/secrets/wi-agent-tokens, readOnly: true}
  {{- end }}
  {{- if $config.issuer }}
  - {name: wi-issuer, mountPath: /var/run/secrets/wi-agent-issuer, readOnly: true}
  {{- end }}
  {{- if include "workload-identity-agent.api" . }}
  - {name: wi-api, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  {{- end }}
  {{- range $config.identities }}
  {{- if .sinks }}
  - {name: {{ include "workload-identity-agent.volume" .name }}, mountPath: /var/run/secrets/wi-agent/{{ .name }}}
  {{- end }}
  {{- end }}
{{- end }}

{{/* The authorizations that come through the environment, and the pod's names where the agent talks to the API server. */}}
{{- define "workload-identity-agent.sidecarEnv" -}}
{{- range (include "workload-identity-agent.config" . | fromYaml).identities }}
{{- if dig "serve" "authorization" "" . }}
- name: {{ include "workload-identity-agent.authorizationVariable" .name }}
  valueFrom: {{ include "workload-identity-agent.authorizationSource" (dict "agent" $ "name" .name) }}
{{- end }}
{{- end }}
{{- if include "workload-identity-agent.api" . }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
{{- end }}
{{- end }}

{{/*
The pod's annotations: a mesh's proxy would bring requests from other machines to the metadata endpoint as if they came from this one, so its ports
are taken out of the mesh's hands.
https://istio.io/latest/docs/reference/config/annotations/ https://linkerd.io/2/reference/proxy-configuration/
*/}}
{{- define "workload-identity-agent.podAnnotations" -}}
{{- $ports := include "workload-identity-agent.metadataPorts" . -}}
traffic.sidecar.istio.io/excludeInboundPorts: {{ $ports | quote }}
config.linkerd.io/skip-inbound-ports: {{ $ports | quote }}
{{- end }}

{{/* Seconds until the start-up probe gives up. */}}
{{- define "workload-identity-agent.startupTimeout" -}}
{{- with .Values.startupProbe -}}
{{- add (.initialDelaySeconds | default 0) (mul (.periodSeconds | default 10) (.failureThreshold | default 3)) -}}
{{- end -}}
{{- end }}

{{/* Projected tokens: of the identities whose source the chart filled in. */}}
{{- define "workload-identity-agent.tokens" -}}
{{- range .Values.config.identities }}
{{- if not (hasKey . "source") }}
- serviceAccountToken:
    path: {{ .name }}/token
    audience: {{ include "workload-identity-agent.audience" . | quote }}
    expirationSeconds: {{ $.Values.tokenExpirationSeconds }}
{{- end }}
{{- end }}
{{- end }}

{{/* "true" where the agent talks to the API server: an identity has source `kubernetes`, and no kubeconfig of its own. */}}
{{- define "workload-identity-agent.api" -}}
{{- $asked := false -}}
{{- range .Values.config.identities -}}
{{- if and (eq (dig "source" "type" "" .) "kubernetes") (not (dig "source" "kubeconfig" "" .)) -}}{{- $asked = true -}}{{- end -}}
{{- end -}}
{{- if $asked -}}true{{- end -}}
{{- end }}

{{/* One volume for each identity: a container sees what it mounts and nothing else. In memory, so that no token reaches a disk. */}}
{{- define "workload-identity-agent.volumes" -}}
- name: wi-config
  configMap: {name: {{ include "workload-identity-agent.fullname" . }}}
- name: wi-run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- with include "workload-identity-agent.tokens" . }}
- name: wi-tokens
  projected:
    sources: {{- . | trim | nindent 6 }}
{{- end }}
{{- with .Values.issuerKeys.secret }}
# Root's, and for the pod's group to read. Optional: what needs no key does not wait for it, and the agent says what is missing.
- name: wi-issuer
  secret: {secretName: {{ . }}, defaultMode: 0440, optional: true}
{{- end }}
{{- if include "workload-identity-agent.api" . }}
# What `automountServiceAccountToken` would give every container of the pod, for the agent alone.
- name: wi-api
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}
{{- range (include "workload-identity-agent.config" . | fromYaml).identities }}
{{- if .sinks }}
- name: {{ include "workload-identity-agent.volume" .name }}
  emptyDir: {medium: Memory, sizeLimit: 4Mi}
{{- end }}
{{- end }}
{{- end }}

{{/* What your container mounts to read one identity's files; the argument holds `agent` and `identity`. */}}
{{- define "workload-identity-agent.mounts" -}}
{{- $identity := include "workload-identity-agent.identity" . | fromYaml -}}
{{- if $identity.sinks -}}
- {name: {{ include "workload-identity-agent.volume" .identity }}, mountPath: /var/run/secrets/wi-agent/{{ .identity }}, readOnly: true}
{{- else -}}
[]
{{- end -}}
{{- end }}
