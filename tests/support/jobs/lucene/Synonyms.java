import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.text.ParseException;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.analysis.core.WhitespaceTokenizer;
import org.apache.lucene.analysis.synonym.SolrSynonymParser;
import org.apache.lucene.analysis.synonym.SynonymGraphFilter;
import org.apache.lucene.analysis.synonym.SynonymMap;
import org.apache.lucene.analysis.tokenattributes.CharTermAttribute;

/** Has Lucene read a file of synonyms, and answers each line with the tokens that its filter makes of it. */
public final class Synonyms {
    public static void main(String[] arguments) throws IOException, ParseException {
        SolrSynonymParser parser = new SolrSynonymParser(true, true, new WhitespaceAnalyzer());
        try (Reader file = Files.newBufferedReader(Paths.get(arguments[0]), StandardCharsets.UTF_8)) {
            parser.parse(file);
        }
        SynonymMap map = parser.build();
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            WhitespaceTokenizer words = new WhitespaceTokenizer();
            words.setReader(new java.io.StringReader(line));
            try (TokenStream tokens = new SynonymGraphFilter(words, map, false)) {
                CharTermAttribute term = tokens.addAttribute(CharTermAttribute.class);
                StringBuilder found = new StringBuilder();
                tokens.reset();
                while (tokens.incrementToken()) {
                    found.append(found.length() == 0 ? "" : " ").append(term);
                }
                tokens.end();
                out.append(found).append('\n');
            }
        }
        out.flush();
    }
}
