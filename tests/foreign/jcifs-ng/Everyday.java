// The everyday of a client on a share, by jcifs-ng: each step prints "ok STEP", "not ok STEP: reason" or "skip STEP: reason".

import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import jcifs.CIFSContext;
import jcifs.config.PropertyConfiguration;
import jcifs.context.BaseContext;
import jcifs.smb.NtlmPasswordAuthenticator;
import jcifs.smb.SmbAuthException;
import jcifs.smb.SmbFile;
import jcifs.smb.SmbFileOutputStream;
import jcifs.smb.SmbRandomAccessFile;

public class Everyday {
    static final String PASSWORD = System.getenv("FOREIGN_PASSWORD");
    static final String SHARE = System.getenv("FOREIGN_SHARE");

    interface Step {
        void run() throws Exception;
    }

    static void step(String name, Step step) {
        String line = "ok " + name;
        try {
            step.run();
        } catch (UnsupportedOperationException reason) {
            line = "skip " + name + ": " + reason.getMessage();
        } catch (Throwable error) {
            line = "not ok " + name + ": " + error;
        }
        System.out.println(line.replace('\n', ' '));
    }

    static void expect(boolean condition, String reason) {
        if (!condition) {
            throw new IllegalStateException(reason);
        }
    }

    static byte[] randomBytes(int size) {
        byte[] data = new byte[size];
        new Random(size).nextBytes(data);
        return data;
    }

    static CIFSContext context(String password) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("jcifs.smb.client.minVersion", "SMB300");
        properties.setProperty("jcifs.smb.client.maxVersion", "SMB311");
        properties.setProperty("jcifs.smb.client.signingEnforced", "true");
        return new BaseContext(new PropertyConfiguration(properties))
                .withCredentials(new NtlmPasswordAuthenticator("", System.getenv("FOREIGN_USER"), password));
    }

    static SmbFile at(CIFSContext context, String share, String name) throws Exception {
        String server = "smb://" + System.getenv("FOREIGN_HOST") + ":" + System.getenv("FOREIGN_PORT") + "/";
        return new SmbFile(server + share + "/" + name, context);
    }

    static void write(SmbFile file, byte[] data, boolean append) throws Exception {
        try (OutputStream stream = new SmbFileOutputStream(file, append)) {
            stream.write(data);
        }
    }

    static byte[] read(SmbFile file) throws Exception {
        try (InputStream stream = file.getInputStream()) {
            return stream.readAllBytes();
        }
    }

    static void writeAndCompare(SmbFile file, byte[] data) throws Exception {
        write(file, data, false);
        expect(Arrays.equals(read(file), data), file + " does not hold what was written");
    }

    static void directories(CIFSContext context) throws Exception {
        SmbFile directory = at(context, SHARE, "directory/");
        directory.mkdir();
        at(context, SHARE, "directory/inner/").mkdir();
        String[] names = directory.list();
        expect(names.length == 1 && names[0].replace("/", "").equals("inner"), "the listing is " + Arrays.toString(names));
        at(context, SHARE, "directory/inner/").delete();
        directory.delete();
        expect(!at(context, SHARE, "directory/").exists(), "the directory is still there");
    }

    static void renameFile(CIFSContext context) throws Exception {
        at(context, SHARE, "file").renameTo(at(context, SHARE, "renamed"));
        expect(!at(context, SHARE, "file").exists(), "the old name is still there");
        expect(Arrays.equals(read(at(context, SHARE, "renamed")), randomBytes(100_000)), "the file does not hold what was written");
    }

    static void renameDirectory(CIFSContext context) throws Exception {
        at(context, SHARE, "old/").mkdir();
        write(at(context, SHARE, "old/inside"), "inside".getBytes(), false);
        at(context, SHARE, "old/").renameTo(at(context, SHARE, "new/"));
        expect(Arrays.equals(read(at(context, SHARE, "new/inside")), "inside".getBytes()), "the file inside does not hold what was written");
    }

    static void append(CIFSContext context) throws Exception {
        SmbFile file = at(context, SHARE, "log");
        write(file, "first\n".getBytes(), false);
        write(file, "second\n".getBytes(), true);
        expect(new String(read(at(context, SHARE, "log"))).equals("first\nsecond\n"), "the file holds " + new String(read(file)));
    }

    static void truncate(CIFSContext context) throws Exception {
        try (SmbRandomAccessFile file = new SmbRandomAccessFile(at(context, SHARE, "log"), "rw")) {
            file.setLength(3);
        }
        expect(new String(read(at(context, SHARE, "log"))).equals("fir"), "the file does not end after 3 bytes");
    }

    static void delete(CIFSContext context) throws Exception {
        at(context, SHARE, "log").delete();
        expect(!at(context, SHARE, "log").exists(), "the file is still there");
    }

    static void unicodeNames(CIFSContext context) throws Exception {
        Set<String> names = new HashSet<>(List.of("Übergrößenträger", "日本語のファイル", "Ελληνικά и русский", "emoji 🦀"));
        at(context, SHARE, "unicode/").mkdir();
        for (String name : names) {
            writeAndCompare(at(context, SHARE, "unicode/" + name), name.getBytes("UTF-8"));
        }
        expect(new HashSet<>(Arrays.asList(at(context, SHARE, "unicode/").list())).equals(names), "the listing is another one");
    }

    static void manyNames(CIFSContext context) throws Exception {
        at(context, SHARE, "many/").mkdir();
        for (int number = 0; number < 2000; number++) {
            at(context, SHARE, String.format("many/name-%04d", number)).createNewFile();
        }
        String[] names = at(context, SHARE, "many/").list();
        expect(names.length == 2000 && new HashSet<>(Arrays.asList(names)).size() == 2000, names.length + " entries");
    }

    static void wrongPassword() throws Exception {
        try {
            at(context(PASSWORD + "x"), SHARE, "").list();
        } catch (SmbAuthException refusal) {
            expect(refusal.getNtStatus() == 0xC000006D, "not STATUS_LOGON_FAILURE: " + refusal);
            return;
        }
        throw new IllegalStateException("was accepted");
    }

    static void twoClients() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(2);
        List<Future<Void>> results = new ArrayList<>();
        for (int client = 0; client < 2; client++) {
            int number = client;
            results.add(pool.submit((Callable<Void>) () -> {
                CIFSContext context = context(PASSWORD);
                for (int round = 0; round < 50; round++) {
                    writeAndCompare(at(context, SHARE, "client-" + number), randomBytes(10_000 * (number + 1) + round));
                }
                return null;
            }));
        }
        for (Future<Void> result : results) {
            result.get();
        }
        pool.shutdown();
    }

    static void encrypted() {
        throw new UnsupportedOperationException("jcifs-ng 2.1 offers encryption and does not encrypt; smbd refuses it as well");
    }

    public static void main(String[] arguments) throws Exception {
        CIFSContext context = context(PASSWORD);
        step("connect", () -> at(context, SHARE, "").list());
        step("directories", () -> directories(context));
        step("write and read back", () -> writeAndCompare(at(context, SHARE, "file"), randomBytes(100_000)));
        step("rename a file", () -> renameFile(context));
        step("rename a directory", () -> renameDirectory(context));
        step("append", () -> append(context));
        step("truncate", () -> truncate(context));
        step("delete", () -> delete(context));
        step("Unicode names", () -> unicodeNames(context));
        step("64 MiB", () -> writeAndCompare(at(context, SHARE, "large"), randomBytes(64 << 20)));
        step("2,000 names", () -> manyNames(context));
        step("encrypted", Everyday::encrypted);
        step("two clients", Everyday::twoClients);
        step("wrong password", Everyday::wrongPassword);
        System.exit(0);
    }
}
