import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import org.mapdb.DB;
import org.mapdb.DBMaker;
import org.mapdb.Serializer;

/**
 * A recipe for {@code ftld crash-test}: MapDB 3.1.0 ({@code build.sh mapdb} makes the program; it needs a JDK and Maven), with
 * {@code --memory 512MiB}. A record is reported once its commit returned.
 *
 * <pre>
 * mapdb run FOLDER RECORDS HOW    HOW: hash: a hash map; early: reports a record before its commit; tree: a tree map, which 3.1.0
 *                                 may lose
 * mapdb serve                     a check that stays up, for --server: is every reported record there?
 * </pre>
 */
class Base {
    static DB open(String folder) {
        return DBMaker.fileDB(folder + "/base").transactionEnable().fileLockDisable().make();
    }

    static void run(String folder, int records, String how) throws IOException {
        var base = open(folder);
        var input = new BufferedReader(new InputStreamReader(System.in));
        var map = how.equals("tree")
            ? base.treeMap("map", Serializer.INTEGER, Serializer.STRING).createOrOpen()
            : base.hashMap("map", Serializer.INTEGER, Serializer.STRING).createOrOpen();
        for (int number = 0; number <= records; number++) {
            // Commit 0 is the empty map.
            if (number > 0) map.put(number, (number + ";").repeat(100));
            if (!how.equals("early")) base.commit();
            System.out.println("ACK " + number);
            if (!"OK".equals(input.readLine())) throw new IOException("no answer");
            base.commit();
        }
    }

    static String check(String folder, int reported) {
        var base = open(folder);
        java.util.Map<Integer, String> map = base.get("map");
        for (int number = 1; number <= reported; number++)
            if (!(number + ";").repeat(100).equals(map.get(number))) return "record " + number + " is missing or wrong";
        base.close();
        return "ok";
    }

    public static void main(String[] words) throws IOException {
        if (words[0].equals("run")) {
            run(words[1], Integer.parseInt(words[2]), words[3]);
            // As after a power cut: nothing is closed.
            Runtime.getRuntime().halt(0);
        }
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            var tab = line.lastIndexOf('\t');
            String answer = "ok";
            try {
                if (tab + 1 < line.length()) answer = check(line.substring(0, tab), Integer.parseInt(line.substring(tab + 1)));
            } catch (Throwable error) {
                answer = error.toString().lines().findFirst().get();
            }
            System.out.println(answer);
        }
    }
}
