{{/*
Variables that make SDKs in your container use one identity; the argument holds `agent` and `identity`. One way only: the endpoint, in the
first dialect that serves the identity, else the files. As `wi-agent env NAME --format yaml` prints them, but for NO_PROXY: that is yours to say,
where your container has a proxy.
*/}}
{{- define "workload-identity-agent.env" -}}
{{- $identity := include "workload-identity-agent.identity" . | fromYaml -}}
{{- $type := $identity.provider.type -}}
{{- $one := dict "agent" .agent "name" .identity "identity" $identity "provider" $identity.provider "serve" ($identity.serve | default dict) -}}
{{- if $one.serve.dialects -}}
{{- include (printf "workload-identity-agent.env.%s" (first $one.serve.dialects)) $one -}}
{{- else if has $type (list "aws" "azure" "gcp" "alibaba") -}}
{{- $sink := first $identity.sinks | required (printf "config.identities: %s: neither served nor in files: nothing leads an SDK to it" .identity) -}}
{{- $names := $sink.names | default dict -}}
{{- $_ := set $one "directory" ($sink.mountPath | default $sink.directory) -}}
{{- range $file := list "token" "credentialsFile" "credentials" -}}
{{- $_ := set $one $file (printf "%s/%s" $one.directory (get $names $file | default $file)) -}}
{{- end -}}
{{- include (printf "workload-identity-agent.env.files.%s" $type) $one -}}
{{- else -}}
[]
{{- end -}}
{{- end }}

{{/* What only the configuration can say, where files lead an SDK to the identity. The argument holds `name`, `key` and `value`. */}}
{{- define "workload-identity-agent.stated" -}}
{{- .value | required (printf "config.identities: %s: provider.%s is the ServiceAccount's to say: serve the identity, or say it here too" .name .key) -}}
{{- end }}

{{/* The session's name, the same at every start; the argument as in `env`. */}}
{{- define "workload-identity-agent.session" -}}
{{- .provider.sessionName | default (printf "wi-%s-%s" (.name | trunc 52) (printf "%s\x00%s" .name .provider.roleArn | sha256sum | trunc 8)) -}}
{{- end }}

{{/* Where SDKs that ask well-known paths find the identity: its own port, or the endpoint if it is the default there. */}}
{{- define "workload-identity-agent.root" -}}
{{- $address := include "workload-identity-agent.metadataAddress" .agent -}}
{{- if .serve.port -}}
{{- regexReplaceAll ":[0-9]+$" $address (printf ":%d" (int .serve.port)) -}}
{{- else if .serve.default -}}
{{- $address -}}
{{- else if ne .provider.type "aws" -}}
{{- fail (printf "config.identities: %s: no path of %s names an identity: set serve.default: true for one identity, or serve.port" .name (first .serve.dialects)) -}}
{{- end -}}
{{- end }}

{{- define "workload-identity-agent.env.container" -}}
- name: AWS_CONTAINER_CREDENTIALS_FULL_URI
  value: http://{{ include "workload-identity-agent.metadataAddress" .agent }}/aws/{{ .name }}/credentials
{{- if .serve.authorization }}
- name: AWS_CONTAINER_AUTHORIZATION_TOKEN
  valueFrom: {{ include "workload-identity-agent.authorizationSource" . }}
{{- else }}
{{- $sink := first .identity.sinks }}
- {name: AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, value: {{ printf "%s/authorization" ($sink.mountPath | default $sink.directory) | quote }}}
{{- end }}
- {name: AWS_EC2_METADATA_DISABLED, value: "true"}
{{ include "workload-identity-agent.env.region" . }}
{{- end }}

{{- define "workload-identity-agent.env.imds" -}}
{{- $root := include "workload-identity-agent.root" . -}}
- name: AWS_EC2_METADATA_SERVICE_ENDPOINT
  value: http://{{ $root | default (printf "%s/aws/%s/imds" (include "workload-identity-agent.metadataAddress" .agent) .name) }}
- {name: AWS_EC2_METADATA_V1_DISABLED, value: "true"}
{{ include "workload-identity-agent.env.region" . }}
{{- end }}

{{- define "workload-identity-agent.env.region" -}}
- {name: AWS_REGION, value: {{ .provider.region | quote }}}
- {name: AWS_DEFAULT_REGION, value: {{ .provider.region | quote }}}
{{- end }}

{{- define "workload-identity-agent.env.files.aws" -}}
{{- if or .provider.chain .provider.policy .provider.policyArns -}}
- {name: AWS_SHARED_CREDENTIALS_FILE, value: {{ .credentials | quote }}}
{{- else -}}
- name: AWS_ROLE_ARN
  value: {{ include "workload-identity-agent.stated" (dict "name" .name "key" "roleArn" "value" .provider.roleArn) | quote }}
- {name: AWS_ROLE_SESSION_NAME, value: {{ include "workload-identity-agent.session" . | quote }}}
- {name: AWS_WEB_IDENTITY_TOKEN_FILE, value: {{ .token | quote }}}
{{- with .provider.endpoint }}
- {name: AWS_ENDPOINT_URL_STS, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{ include "workload-identity-agent.env.region" . }}
{{- end }}

{{- define "workload-identity-agent.env.appservice" -}}
- name: IDENTITY_ENDPOINT
  value: http://{{ include "workload-identity-agent.metadataAddress" .agent }}/azure/{{ .name }}/token
- name: IDENTITY_HEADER
  valueFrom: {{ include "workload-identity-agent.authorizationSource" . }}
{{- end }}

{{- define "workload-identity-agent.env.azure-imds" -}}
- {name: AZURE_POD_IDENTITY_AUTHORITY_HOST, value: "http://{{ include "workload-identity-agent.root" . }}"}
{{- end }}

{{- define "workload-identity-agent.env.files.azure" -}}
{{- $hosts := dict "public" "login.microsoftonline.com" "usgovernment" "login.microsoftonline.us" "china" "login.chinacloudapi.cn" -}}
{{- $authority := .provider.authority | default "public" -}}
- name: AZURE_CLIENT_ID
  value: {{ include "workload-identity-agent.stated" (dict "name" .name "key" "clientId" "value" .provider.clientId) | quote }}
- name: AZURE_TENANT_ID
  value: {{ include "workload-identity-agent.stated" (dict "name" .name "key" "tenantId" "value" .provider.tenantId) | quote }}
- {name: AZURE_FEDERATED_TOKEN_FILE, value: {{ .token | quote }}}
- name: AZURE_AUTHORITY_HOST
  value: {{ hasKey $hosts $authority | ternary (printf "https://%s/" (get $hosts $authority)) (printf "%s/" (trimSuffix "/" $authority)) | quote }}
{{- end }}

{{- define "workload-identity-agent.env.gce" -}}
{{- $root := include "workload-identity-agent.root" . -}}
- {name: GCE_METADATA_HOST, value: {{ $root | quote }}}
- {name: GCE_METADATA_IP, value: {{ $root | quote }}}
- {name: GCE_METADATA_ROOT, value: {{ $root | quote }}}
- {name: METADATA_SERVER_DETECTION, value: assume-present}
{{- $gce := .serve.gce | default dict }}
{{- include "workload-identity-agent.env.project" (dict
  "project" ($gce.projectId | default (include "workload-identity-agent.project" .provider))
  "universe" ($gce.universeDomain | default .provider.universeDomain)) }}
{{- end }}

{{- define "workload-identity-agent.env.files.gcp" -}}
{{- if not .provider.delegates -}}
- {name: GOOGLE_APPLICATION_CREDENTIALS, value: {{ .credentialsFile | quote }}}
{{ end -}}
{{- if ne (.provider.exchange | toString) "false" -}}
- {name: CLOUDSDK_AUTH_ACCESS_TOKEN_FILE, value: {{ .credentials | quote }}}
{{- else if not .provider.delegates -}}
- {name: CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE, value: {{ .credentialsFile | quote }}}
{{- end }}
{{- include "workload-identity-agent.env.project" (dict
  "project" (include "workload-identity-agent.project" .provider) "universe" .provider.universeDomain) }}
{{- end }}

{{/* The project, which google-auth otherwise asks for, and fails where it may not; and another universe than the public one. */}}
{{- define "workload-identity-agent.env.project" -}}
{{- with .project }}
- {name: GOOGLE_CLOUD_PROJECT, value: {{ . | quote }}}
- {name: CLOUDSDK_CORE_PROJECT, value: {{ . | quote }}}
{{- end }}
{{- if ne (.universe | default "googleapis.com") "googleapis.com" }}
- {name: GOOGLE_CLOUD_UNIVERSE_DOMAIN, value: {{ .universe | quote }}}
- {name: CLOUDSDK_CORE_UNIVERSE_DOMAIN, value: {{ .universe | quote }}}
{{- end }}
{{- end }}

{{/* Id or number of the project of Google's: as said, else the service account's, else the pool's. The argument is the provider. */}}
{{- define "workload-identity-agent.project" -}}
{{- $account := .serviceAccount | default "" -}}
{{- $own := regexFind "@.*\\.iam\\.gserviceaccount\\.com$" $account | trimPrefix "@" | trimSuffix ".iam.gserviceaccount.com" -}}
{{- if .project -}}
{{- .project -}}
{{- else if contains "." $own -}}
{{- printf "%s:%s" (regexReplaceAll "^[^.]*\\." $own "") (regexFind "^[^.]*" $own) -}}
{{- else if $own -}}
{{- $own -}}
{{- else if $account -}}
{{- regexFind "^[^@]*" $account | trimSuffix "-compute" -}}
{{- else -}}
{{- with .workloadIdentityProvider -}}{{- index (splitList "/" .) 1 -}}{{- end -}}
{{- end -}}
{{- end }}

{{- define "workload-identity-agent.env.uri" -}}
{{- $variable := include "workload-identity-agent.authorizationVariable" .name -}}
- name: {{ $variable }}
  valueFrom: {{ include "workload-identity-agent.authorizationSource" . }}
- name: ALIBABA_CLOUD_CREDENTIALS_URI
  value: http://{{ include "workload-identity-agent.metadataAddress" .agent }}/alibaba/{{ .name }}/$({{ $variable }})/credentials
- {name: ALIBABA_CLOUD_ECS_METADATA_DISABLED, value: "true"}
- {name: ALIBABA_CLOUD_CLI_PROFILE_DISABLED, value: "true"}
{{- end }}

{{- define "workload-identity-agent.env.ecs" -}}
{{- with .provider.roleArn -}}
- {name: ALIBABA_CLOUD_ECS_METADATA, value: {{ splitList "/" . | last | quote }}}
{{ end -}}
- {name: ALIBABA_CLOUD_IMDSV1_DISABLED, value: "true"}
- {name: ALIBABA_CLOUD_CLI_PROFILE_DISABLED, value: "true"}
{{- end }}

{{- define "workload-identity-agent.env.files.alibaba" -}}
- name: ALIBABA_CLOUD_ROLE_ARN
  value: {{ include "workload-identity-agent.stated" (dict "name" .name "key" "roleArn" "value" .provider.roleArn) | quote }}
- {name: ALIBABA_CLOUD_OIDC_PROVIDER_ARN, value: {{ .provider.oidcProviderArn | quote }}}
- {name: ALIBABA_CLOUD_OIDC_TOKEN_FILE, value: {{ .token | quote }}}
- {name: ALIBABA_CLOUD_ROLE_SESSION_NAME, value: {{ include "workload-identity-agent.session" . | quote }}}
{{- with .provider.region }}
- {name: ALIBABA_CLOUD_STS_REGION, value: {{ . | quote }}}
{{- end }}
{{- if .provider.vpc }}
- {name: ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED, value: "true"}
{{- end }}
{{- if not (regexMatch "[#%;\\s]" .token) }}
- {name: ALIBABA_CLOUD_CREDENTIALS_FILE, value: {{ .credentialsFile | quote }}}
{{- end }}
- {name: ALIBABA_CLOUD_ECS_METADATA_DISABLED, value: "true"}
- {name: ALIBABA_CLOUD_CLI_PROFILE_DISABLED, value: "true"}
{{- end }}
