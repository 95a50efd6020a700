{{/* Names and labels. */}}

{{- define "workload-identity-agent.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "workload-identity-agent.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "workload-identity-agent.labels" -}}
{{ include "workload-identity-agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "workload-identity-agent.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "workload-identity-agent.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{- define "workload-identity-agent.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* "true" where the cluster runs init containers that go on running. */}}
{{- define "workload-identity-agent.native" -}}
{{- if eq .Values.nativeSidecar "always" -}}
true
{{- else if and (eq .Values.nativeSidecar "auto") (semverCompare ">=1.29-0" .Capabilities.KubeVersion.Version) -}}
true
{{- end -}}
{{- end }}

{{/* The volume of one identity (the argument is its name): a DNS label, and no two names share one. */}}
{{- define "workload-identity-agent.volume" -}}
{{- if or (contains "." .) (gt (len .) 57) -}}
{{- printf "wi-id-%s-%s" (. | replace "." "-" | trunc 48 | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- else -}}
{{- printf "wi-id-%s" . -}}
{{- end -}}
{{- end }}
