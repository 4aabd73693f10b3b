#!/bin/sh
# Gets from its registry what a recipe needs, and makes the program FOLDER/NAME of the recipe: `FOLDER/NAME run ...`.
# usage: build.sh NAME [FOLDER]   duckdb, rocksdb: pip; bbolt: Go; fjall, redb: cargo; mapdb: a JDK and Maven
set -eu
here=$(cd "$(dirname "$0")" && pwd)
name=${1:-}
folder=$(mkdir -p "${2:-.}" && cd "${2:-.}" && pwd)
parts=$folder/$name.parts
# python PACKAGE==VERSION
python() {
  /usr/bin/python3 -m pip install -q --target "$parts" "$1"
  program "PYTHONPATH='$parts' PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 '$here/$name-base.py'"
}
# rust VERSION
rust() {
  mkdir -p "$parts"
  cp "$here/$name-base.rs" "$parts/main.rs"
  cat > "$parts/Cargo.toml" << END
[package]
name = "$name-base"
edition = "2021"
[dependencies]
$name = "=$1"
[[bin]]
name = "$name-base"
path = "main.rs"
[workspace]
END
  cargo build -q --release --manifest-path "$parts/Cargo.toml" --target-dir "$parts/target"
  cp "$parts/target/release/$name-base" "$folder/$name"
}
# program COMMAND: a shell script that runs it.
program() {
  printf '#!/bin/sh\n%s "$@"\n' "$1" > "$folder/$name"
  chmod 755 "$folder/$name"
}
case $name in
duckdb) python duckdb==2.0.1 ;;
rocksdb) python rocksdict==0.3.29 ;;
fjall) rust 3.1.13 ;;
redb) rust 4.6.0 ;;
bbolt)
  mkdir -p "$parts"
  cp "$here/bbolt-base.go" "$parts/main.go"
  cd "$parts"
  [ -e go.mod ] || go mod init base
  go get -u=patch go.etcd.io/bbolt@v1.5.0
  go build -o "$folder/bbolt" .
  ;;
mapdb)
  mkdir -p "$parts"
  cat > "$parts/pom.xml" << END
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>base</groupId><artifactId>base</artifactId>
<version>0</version><dependencies><dependency><groupId>org.mapdb</groupId><artifactId>mapdb</artifactId><version>3.1.0</version></dependency>
</dependencies></project>
END
  mvn -q -f "$parts/pom.xml" dependency:copy-dependencies -DoutputDirectory="$parts/lib"
  javac -cp "$parts/lib/*" -d "$parts" "$here/mapdb-base.java"
  program "exec java -Xmx100m -XX:TieredStopAtLevel=1 -cp '$parts:$parts/lib/*' Base"
  ;;
*)
  sed -n '3s/^# *//p' "$0" >&2
  exit 2
  ;;
esac
