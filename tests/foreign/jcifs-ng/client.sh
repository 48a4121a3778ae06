# jcifs-ng, from Maven Central.
prepare() {
    local name
    for name in mvn javac; do command -v $name >/dev/null || { echo "$name is missing: apt-get install maven default-jdk-headless"; return 1; }; done
    if ! [[ -d $built/jars ]]; then
        mvn -q -B -f "$here/jcifs-ng/pom.xml" dependency:copy-dependencies -DoutputDirectory="$built/jars.new" >&2 || { echo "jcifs-ng cannot be had from Maven Central"; return 1; }
        mv "$built/jars.new" "$built/jars"
    fi
    javac -encoding UTF-8 -cp "$built/jars/*" -d "$built" "$here/jcifs-ng/Everyday.java" >&2 || return 1
    basename "$built"/jars/jcifs-ng-*.jar .jar | sed 's/^jcifs-ng-//'
}
everyday() { timeout 300 java -Dfile.encoding=UTF-8 -Dstdout.encoding=UTF-8 -cp "$built/jars/*:$built" Everyday; }
