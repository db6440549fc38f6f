import java.io.StringReader;
import java.io.StringWriter;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.postgresql.PGConnection;
import org.postgresql.replication.PGReplicationStream;

/**
 * Runs one scenario of pgjdbc against a pooler and exits with 0 where all was right: {@code Check SCENARIO URI}. pgjdbc
 * prepares on the server what it runs for the fifth time, BEGIN and COMMIT too, and sends its batches without waiting.
 *
 * <p>Started by tests/e2e/test_drivers.py, which also starts the pooler; {@code --list} names the scenarios.
 */
public final class Check {
  private interface Scenario {
    void run(Server server) throws Exception;
  }

  private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

  static {
    SCENARIOS.put("simple", Check::simple);
    SCENARIOS.put("prepared", Check::prepared);
    SCENARIOS.put("transactions", Check::transactions);
    SCENARIOS.put("failures", Check::failures);
    SCENARIOS.put("copy", Check::copy);
    SCENARIOS.put("cancel", Check::cancel);
    SCENARIOS.put("crowd", Check::crowd);
    SCENARIOS.put("large", Check::large);
    SCENARIOS.put("notices", Check::notices);
    SCENARIOS.put("parameters", Check::parameters);
    SCENARIOS.put("console", Check::console);
    SCENARIOS.put("replication", Check::replication);
    SCENARIOS.put("reads", Check::reads);
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length == 1 && arguments[0].equals("--list")) {
      SCENARIOS.keySet().forEach(System.out::println);
      return;
    }
    int status = 0;
    try {
      SCENARIOS.get(arguments[0]).run(new Server(URI.create(arguments[1])));
    } catch (Throwable failure) {
      failure.printStackTrace();
      status = 1;
    }
    System.exit(status); // whatever threads are left
  }

  /** Where the pooler is, and how one logs in. */
  private record Server(URI uri) {
    Connection connect(String... settings) throws SQLException {
      Properties properties = new Properties();
      String[] user = uri.getUserInfo().split(":");
      properties.setProperty("user", user[0]);
      if (user.length > 1) {
        properties.setProperty("password", user[1]);
      }
      properties.setProperty("sslmode", uri.getQuery().replace("sslmode=", ""));
      for (int at = 0; at < settings.length; at += 2) {
        properties.setProperty(settings[at], settings[at + 1]);
      }
      String address = uri.getHost() + ":" + uri.getPort() + uri.getPath();
      return DriverManager.getConnection("jdbc:postgresql://" + address, properties);
    }
  }

  // --- what every scenario says -------------------------------------------------------------------------------

  private static void equal(Object found, Object wanted) {
    if (!Objects.equals(found, wanted)) {
      throw new AssertionError(found + " instead of " + wanted);
    }
  }

  private static Object value(Connection connection, String sql, Object... values) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      for (int index = 0; index < values.length; index++) {
        statement.setObject(index + 1, values[index]);
      }
      try (ResultSet rows = statement.executeQuery()) {
        rows.next();
        return rows.getObject(1);
      }
    }
  }

  private static void execute(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(sql);
    }
  }

  private interface Request {
    void run() throws Exception;
  }

  private static SQLException refused(String state, Request request) throws Exception {
    try {
      request.run();
    } catch (SQLException refusal) {
      equal(refusal.getSQLState(), state);
      return refusal;
    }
    throw new AssertionError("not refused with " + state);
  }

  // --- the scenarios ------------------------------------------------------------------------------------------

  private static void simple(Server server) throws Exception {
    try (Connection connection = server.connect("preferQueryMode", "simple")) {
      for (int number = 0; number < 50; number++) {
        equal(value(connection, "select ?::int4 + 1", number), number + 1);
      }
    }
  }

  /** Prepared from the first time, from the fifth, and with hardly any place to remember statements. */
  private static void prepared(Server server) throws Exception {
    for (String threshold : List.of("1", "5", "-1")) {
      try (Connection one = server.connect("prepareThreshold", threshold);
          Connection two = server.connect("prepareThreshold", threshold)) {
        for (int number = 0; number < 50; number++) {
          equal(value(one, "select ?::int4 * 2", number), number * 2);
          equal(value(two, "select ?::text || '!'", "ü"), "ü!");
        }
      }
    }
    try (Connection few = server.connect("prepareThreshold", "1", "preparedStatementCacheQueries", "5")) {
      for (int round = 0; round < 3; round++) {
        for (int number = 0; number < 30; number++) {
          equal(value(few, "select ?::int4 + " + number, round), round + number);
        }
      }
    }
  }

  private static void transactions(Server server) throws Exception {
    try (Connection one = server.connect(); Connection two = server.connect()) {
      execute(one, "drop table if exists jdbc_kept; create table jdbc_kept (number int4)");
      one.setAutoCommit(false);
      // More often than it takes for BEGIN and COMMIT to be prepared.
      for (int round = 0; round < 10; round++) {
        for (int number = 0; number < 2; number++) {
          try (PreparedStatement insert = one.prepareStatement("insert into jdbc_kept values (?)")) {
            insert.setInt(1, number);
            insert.executeUpdate();
          }
          Savepoint inner = one.setSavepoint();
          execute(one, "insert into jdbc_kept values (99)");
          one.rollback(inner);
          if (number == 0) {
            one.rollback();
          } else {
            one.commit();
          }
        }
        equal(value(two, "select count(*)::int4 from jdbc_kept"), round + 1);
      }
      equal(value(two, "select max(number) from jdbc_kept"), 1);
      one.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
      one.setReadOnly(true);
      refused("25006", () -> execute(one, "insert into jdbc_kept values (3)"));
      one.rollback();
    }
  }

  /** Errors alone, in a transaction, and in the middle of batches: what follows is right again. */
  private static void failures(Server server) throws Exception {
    for (String rewrite : List.of("false", "true")) {
      try (Connection connection = server.connect("reWriteBatchedInserts", rewrite)) {
        execute(connection, "drop table if exists jdbc_unique; create table jdbc_unique (number int4 unique)");
        for (int round = 0; round < 20; round++) {
          refused("22012", () -> value(connection, "select 100 / ?::int4", 0));
          refused("42P01", () -> value(connection, "select nonsense from nowhere"));
          connection.setAutoCommit(false);
          try (PreparedStatement insert = connection.prepareStatement("insert into jdbc_unique values (?)")) {
            for (int number = 0; number < 400; number++) {
              insert.setInt(1, number % 300);
              insert.addBatch();
            }
            BatchUpdateException failed = (BatchUpdateException) refused("23505", insert::executeBatch);
            refused("25P02", () -> value(connection, "select 1"));
            equal(failed.getUpdateCounts().length > 0, true);
          }
          connection.rollback();
          connection.setAutoCommit(true);
          equal(value(connection, "select ?::int4", round), round);
        }
      }
    }
    try (Connection connection = server.connect("autosave", "always")) {
      connection.setAutoCommit(false);
      for (int round = 0; round < 10; round++) {
        refused("22012", () -> value(connection, "select 100 / ?::int4", 0));
        equal(value(connection, "select ?::int4", round), round);
      }
      connection.rollback();
    }
  }

  private static void copy(Server server) throws Exception {
    try (Connection connection = server.connect()) {
      execute(connection, "drop table if exists jdbc_copied; create table jdbc_copied (number int4, word text)");
      StringBuilder lines = new StringBuilder();
      for (int number = 0; number < 20_000; number++) {
        lines.append(number).append('\t').append("w".repeat(number % 100)).append('\n');
      }
      var copier = connection.unwrap(PGConnection.class).getCopyAPI();
      equal(copier.copyIn("copy jdbc_copied from stdin", new StringReader(lines.toString())), 20_000L);
      StringWriter out = new StringWriter();
      copier.copyOut("copy (select * from jdbc_copied order by 1) to stdout", out);
      equal(out.toString(), lines.toString());
      refused("22P02", () -> copier.copyIn("copy jdbc_copied from stdin", new StringReader("no number\tx\n")));
      equal(value(connection, "select count(*)::int4 from jdbc_copied"), 20_000);
    }
  }

  private static void cancel(Server server) throws Exception {
    try (Connection connection = server.connect(); Connection other = server.connect();
        Statement sleep = connection.createStatement()) {
      CompletableFuture<SQLException> ended = CompletableFuture.supplyAsync(() -> {
        try {
          return refused("57014", () -> sleep.execute("select pg_sleep(60) /* jdbc */"));
        } catch (Exception unexpected) {
          throw new AssertionError(unexpected);
        }
      });
      String running = "select count(*)::int4 from pg_stat_activity where query like '%/* jdbc */' and wait_event = 'PgSleep'";
      while (value(other, running).equals(0)) {
        Thread.sleep(20);
      }
      sleep.cancel();
      ended.get();
      equal(value(connection, "select 1"), 1);
    }
  }

  /** Far more clients than servers, all with the same generated names. */
  private static void crowd(Server server) throws Exception {
    var threads = Executors.newFixedThreadPool(30);
    List<Future<?>> all = new ArrayList<>();
    for (int client = 0; client < 30; client++) {
      int number = client;
      all.add(threads.submit(() -> {
        try (Connection connection = server.connect("prepareThreshold", "2")) {
          connection.setAutoCommit(false);
          for (int round = 0; round < 20; round++) {
            equal(value(connection, "select ?::int4 + " + number, round), round + number);
            connection.commit();
          }
        }
        return null;
      }));
    }
    for (Future<?> one : all) {
      one.get();
    }
    threads.shutdown();
  }

  private static void large(Server server) throws Exception {
    try (Connection connection = server.connect()) {
      String text = "ü".repeat(5_000_000);
      equal(value(connection, "select ?::text", text).equals(text), true);
      connection.setAutoCommit(false);
      // In parts, by a portal that stays open.
      try (Statement statement = connection.createStatement()) {
        statement.setFetchSize(700);
        int count = 0;
        try (ResultSet rows = statement.executeQuery("select repeat('x', 1000) from generate_series(1, 20000)")) {
          while (rows.next()) {
            count += rows.getString(1).length() == 1000 ? 1 : 0;
          }
        }
        equal(count, 20_000);
      }
      connection.commit();
    }
  }

  private static void notices(Server server) throws Exception {
    try (Connection connection = server.connect(); Statement statement = connection.createStatement()) {
      statement.execute("do $$ begin raise notice 'one'; raise warning 'two'; end $$");
      List<String> heard = new ArrayList<>();
      for (SQLWarning one = statement.getWarnings(); one != null; one = one.getNextWarning()) {
        heard.add(one.getMessage());
      }
      equal(heard, List.of("one", "two"));
    }
  }

  /** What a client sets of itself follows it, and no other client. */
  private static void parameters(Server server) throws Exception {
    String name = "select current_setting('application_name')";
    String zone = "select current_setting('timezone')";
    try (Connection one = server.connect("ApplicationName", "first");
        Connection two = server.connect("ApplicationName", "second")) {
      execute(two, "set timezone to 'Asia/Tokyo'");
      for (int round = 0; round < 10; round++) {
        equal(value(one, name), "first");
        equal(value(two, name), "second");
        equal(value(two, zone), "Asia/Tokyo");
      }
      one.setClientInfo("ApplicationName", "renamed");
      equal(value(two, name), "second");
      equal(value(one, name), "renamed");
      equal(value(one, zone).equals("Asia/Tokyo"), false);
    }
  }

  /** What exporters ask of the console, by both protocols. */
  private static void console(Server server) throws Exception {
    String[] views = "STATS POOLS DATABASES LISTS CONFIG CLIENTS USERS TOTALS STATE VERSION".split(" ");
    for (String mode : List.of("extended", "simple")) {
      try (Connection connection = server.connect("preferQueryMode", mode, "prepareThreshold", "2")) {
        for (int round = 0; round < 4; round++) {
          for (String view : views) {
            equal(value(connection, "SHOW " + view) != null, true);
          }
        }
        refused("42601", () -> value(connection, "SHOW NONSENSE"));
        equal(value(connection, "SHOW VERSION").toString().startsWith("PgBouncer"), true);
      }
    }
  }

  /**
   * What only reads, in each way that pgjdbc has for it, beside writes of the same connections: each read sees what its connection has written. The comments
   * are there for test_read_write_split.py, which counts on which server they were read.
   */
  private static void reads(Server server) throws Exception {
    try (Connection connection = server.connect()) {
      if (value(connection, "select to_regclass('jdbc_reads')::text") == null) {
        execute(connection, "create table jdbc_reads (number int4 primary key, value int4)");
      }
      execute(connection, "delete from jdbc_reads");
      execute(connection, "insert into jdbc_reads select number, 0 from generate_series(0, 9) number");
      for (int round = 0; round < 400; round++) {
        equal(value(connection, "select value + ?::int4 from jdbc_reads where number = ? /* jdbc plain */", round, 9), round);
      }
    }
    List<Request> all = new ArrayList<>();
    for (int client = 0; client < 3; client++) {
      int number = client;
      all.add(() -> readsOwnWrites(server, number));
    }
    all.add(() -> readsInTransactions(server, "transaction"));
    all.add(() -> readsInTransactions(server, "always"));
    all.add(() -> readsBehindBatches(server, "false", 1_000_000));
    all.add(() -> readsBehindBatches(server, "true", 2_000_000));
    var threads = Executors.newFixedThreadPool(all.size());
    List<Future<?>> running = new ArrayList<>();
    for (Request one : all) {
      running.add(threads.submit(() -> {
        one.run();
        return null;
      }));
    }
    for (Future<?> one : running) {
      one.get();
    }
    threads.shutdown();
  }

  /** Alone, and in transactions, of which some are rolled back. */
  private static void readsOwnWrites(Server server, int number) throws Exception {
    String read = "select value from jdbc_reads where number = ? /* jdbc own */";
    String write = "update jdbc_reads set value = ? where number = ?";
    try (Connection connection = server.connect();
        PreparedStatement update = connection.prepareStatement(write)) {
      for (int round = 1; round <= 150; round++) {
        connection.setAutoCommit(round % 3 != 0);
        update.setInt(1, round);
        update.setInt(2, number);
        equal(update.executeUpdate(), 1);
        int wanted = round;
        if (!connection.getAutoCommit()) {
          equal(value(connection, read.replace("own", "block"), number), round);
          if (round % 2 == 0) {
            connection.rollback();
            wanted = round - 1;
          }
          connection.setAutoCommit(true); // commits what is not rolled back
        }
        for (int again = 0; again < 12; again++) {
          equal(value(connection, read, number), wanted);
        }
      }
    }
  }

  /** Declared READ ONLY, with each BEGIN or for the whole session. */
  private static void readsInTransactions(Server server, String mode) throws Exception {
    String read = "select value from jdbc_reads where number = 9 /* jdbc " + mode + " */";
    try (Connection connection = server.connect("readOnlyMode", mode)) {
      for (int round = 0; round < 60; round++) {
        connection.setReadOnly(true);
        equal(value(connection, read), 0);
        connection.setAutoCommit(false);
        equal(value(connection, read), 0);
        equal(value(connection, read), 0);
        if (round % 10 == 0) {
          refused("25006", () -> execute(connection, "delete from jdbc_reads"));
          connection.rollback();
        }
        connection.commit();
        connection.setReadOnly(false);
        execute(connection, "update jdbc_reads set value = value + 1 where number = " + (mode.equals("always") ? 7 : 8));
        connection.commit();
        connection.setAutoCommit(true);
      }
      equal(value(connection, "select value from jdbc_reads where number = ?", mode.equals("always") ? 7 : 8), 60);
    }
  }

  /** Batches, of one INSERT each row or of many rows each INSERT, alone and in a transaction. */
  private static void readsBehindBatches(Server server, String rewrite, int first) throws Exception {
    String read = "select count(*)::int4 from jdbc_reads where number between ? and ? /* jdbc batch */";
    try (Connection connection = server.connect("reWriteBatchedInserts", rewrite);
        PreparedStatement insert = connection.prepareStatement("insert into jdbc_reads values (?, 0)")) {
      for (int round = 0; round < 25; round++) {
        connection.setAutoCommit(round % 2 == 0);
        for (int number = 0; number < 100; number++) {
          insert.setInt(1, first + 100 * round + number);
          insert.addBatch();
        }
        equal(insert.executeBatch().length, 100);
        connection.setAutoCommit(true);
        for (int again = 0; again < 20; again++) {
          equal(value(connection, read, first, first + 999_999), 100 * (round + 1));
        }
      }
    }
  }

  /** A logical slot, as change data capture reads it; the user must be allowed to. */
  private static void replication(Server server) throws Exception {
    String[] settings = {"replication", "database", "assumeMinServerVersion", "9.4", "preferQueryMode", "simple"};
    try (Connection connection = server.connect(settings); Connection writer = server.connect()) {
      var api = connection.unwrap(PGConnection.class).getReplicationAPI();
      var slot = api.createReplicationSlot().logical();
      slot.withSlotName("jdbc").withOutputPlugin("test_decoding").withTemporaryOption().make();
      execute(writer, "drop table if exists jdbc_streamed; create table jdbc_streamed (number int4)");
      for (int number = 0; number < 3; number++) {
        execute(writer, "insert into jdbc_streamed values (" + number + ")");
      }
      List<String> heard = new ArrayList<>();
      try (PGReplicationStream stream = api.replicationStream().logical().withSlotName("jdbc").start()) {
        while (heard.size() < 3) {
          ByteBuffer change = stream.read();
          String text = StandardCharsets.UTF_8.decode(change).toString();
          if (text.contains("INSERT")) {
            heard.add(text.substring(text.lastIndexOf(':') + 1));
          }
          stream.setFlushedLSN(stream.getLastReceiveLSN());
          stream.forceUpdateStatus();
        }
      }
      equal(heard, List.of("0", "1", "2"));
      equal(value(connection, "select count(*) from jdbc_streamed"), 3L);
    }
  }
}
