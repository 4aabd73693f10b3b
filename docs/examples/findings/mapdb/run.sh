#!/bin/sh
# MapDB 3.1.0 with transactionEnable. Its author (issue 617): "MapDB has crash resistant write ahead log." After a cut in a commit the
# store can be opened, and its map cannot.
. "$(dirname "$0")/../lib.sh"
[ -d "$cache/lib" ] || mvn -q -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$cache/lib" || unavailable "mvn does not find it"
javac -cp "$cache/lib/*" -d "$cache" "$here/Base.java"
java="java -Xmx100m -XX:-OmitStackTraceInFastThrow -cp '$cache:$cache/lib/*' Base"
finding 1 "ArrayIndexOutOfBoundsException" --server --check "$java serve" -- sh -c "$java run {} 6"
