module firsttoken.dev/local/openapi-1.35

go 1.26.0

require k8s.io/kubernetes v1.35.4 // indirect
