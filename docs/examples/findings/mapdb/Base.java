import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Map;
import org.mapdb.DB;
import org.mapdb.DBMaker;
import org.mapdb.Serializer;

/** MapDB with transactions: {@code Base run FOLDER N}, {@code Base serve}. */
public class Base {
    static String value(int number) {
        return (number + ";").repeat(100);
    }

    static Map<Integer, String> map(DB base) {
        return base.treeMap("map", Serializer.INTEGER, Serializer.STRING).createOrOpen();
    }

    static void run(DB base, int records) throws IOException {
        var input = new BufferedReader(new InputStreamReader(System.in));
        var map = map(base);
        for (int number = 0; number <= records; number++) {
            // Commit 0 is the empty map.
            if (number > 0) map.put(number, value(number));
            base.commit();
            System.out.println("ACK " + number);
            if (!"OK".equals(input.readLine())) throw new IOException("no answer");
        }
    }

    static String check(DB base, int reported) {
        var map = map(base);
        for (int number = 1; number <= map.size(); number++)
            if (!value(number).equals(map.get(number))) return "record " + number + " is missing or wrong";
        return map.size() < reported ? map.size() + " of " + reported + " reported records are there" : null;
    }

    static DB open(String folder) {
        return DBMaker.fileDB(folder + "/base").transactionEnable().fileLockDisable().make();
    }

    /** A check that stays up: a line per state, the folder and the mark. */
    static void serve() throws IOException {
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            var tab = line.lastIndexOf('\t');
            var mark = line.substring(tab + 1);
            String problem = null;
            try {
                var base = open(line.substring(0, tab));
                problem = check(base, mark.isEmpty() ? 0 : Integer.parseInt(mark));
                base.close();
            } catch (Throwable error) {
                error.printStackTrace();
                problem = error.toString().lines().findFirst().get();
            }
            System.out.println(problem == null ? "ok" : problem);
        }
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments[0].equals("run")) run(open(arguments[1]), Integer.parseInt(arguments[2]));
        else serve();
        // As after a power cut: nothing is closed.
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
