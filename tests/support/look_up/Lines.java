import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** Answers each line, fields in hex of UTF-16 with tabs between: query, context, field, value, ...; "-" is null. */
public final class Lines {
    public static void main(String[] arguments) throws IOException {
        int most = Integer.parseInt(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            Map<String, String> filters = new HashMap<>();
            boolean known = true;
            for (int i = 0; i < fields.length; i++) {
                fields[i] = text(fields[i]);
                known &= fields[i] == null || fields[i].codePoints().allMatch(Character::isDefined);
            }
            for (int i = 2; i < fields.length; i += 2) {
                filters.put(fields[i], fields[i + 1]);
            }
            String key;
            try {
                key = DmqrKey.lookUpKey(fields[0], fields[1], filters, most);
            } catch (IllegalArgumentException refused) {
                key = "refused";
            }
            out.append(key).append(known ? " known\n" : " unknown\n");
        }
        out.flush();
    }

    private static String text(String hex) {
        if (hex.equals("-")) {
            return null;
        }
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < hex.length(); i += 4) {
            out.append((char) Integer.parseInt(hex.substring(i, i + 4), 16));
        }
        return out.toString();
    }
}
