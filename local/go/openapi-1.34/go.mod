module firsttoken.dev/local/openapi-1.34

go 1.26.0

require k8s.io/kubernetes v1.34.4 // indirect
