module example.com/drive

go 1.26.0

require (
	github.com/spark-compile/spark-compile v0.0.0
	github.com/x448/float16 v0.8.4
)

require (
	github.com/ebitengine/purego v0.11.3 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/spark-compile/spark-compile => ../..
