import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.LockModeType;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.SequenceGenerator;
import jakarta.persistence.Version;
import java.net.URI;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.hibernate.ScrollMode;
import org.hibernate.ScrollableResults;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import org.hibernate.engine.jdbc.connections.spi.AbstractMultiTenantConnectionProvider;
import org.hibernate.engine.jdbc.connections.spi.ConnectionProvider;
import org.hibernate.engine.jdbc.connections.spi.MultiTenantConnectionProvider;

/**
 * An application on Hibernate and HikariCP with a schema for each tenant: {@code Check [SCENARIO...] URI} runs it and prints what
 * it got, which is the same whichever way it has to PostgreSQL. A connection of HikariCP's pool serves many threads and tenants
 * in turn: {@code SET search_path} when a session takes it, and back when it returns it.
 *
 * <p>Started by tests/e2e/test_applications.py; {@code --list} names the scenarios.
 */
public final class Check {
  private interface Scenario {
    void run(Application application) throws Exception;
  }

  private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();
  private static final Logger LOGGER = Logger.getLogger("org.hibernate"); // kept: its level would be forgotten with it
  private static final int THREADS = 6;
  private static final List<String> TENANTS = List.of("hibernate_a", "hibernate_b", "hibernate_c", "hibernate_d");

  static {
    SCENARIOS.put("tenants", Check::tenants);
    SCENARIOS.put("settings", Check::settings);
    SCENARIOS.put("readonly", Check::readonly);
    SCENARIOS.put("locks", Check::locks);
    SCENARIOS.put("scroll", Check::scroll);
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length == 1 && arguments[0].equals("--list")) {
      SCENARIOS.keySet().forEach(System.out::println);
      return;
    }
    LOGGER.setLevel(Level.OFF);
    List<String> names = List.of(arguments).subList(0, arguments.length - 1);
    try (Application application = new Application(URI.create(arguments[arguments.length - 1]))) {
      for (String name : names.isEmpty() ? SCENARIOS.keySet() : names) {
        System.out.println("--- " + name);
        SCENARIOS.get(name).run(application);
      }
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1);
    }
    System.exit(0); // whatever threads are left
  }

  // --- the application ----------------------------------------------------------------------------------------

  @Entity(name = "Booking")
  public static class Booking {
    @Id
    @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "booking_seq")
    @SequenceGenerator(name = "booking_seq", sequenceName = "booking_seq", allocationSize = 20)
    public Long id;

    public String tenant;
    public int seats;

    @Version public int version;

    public Booking() {}

    Booking(String tenant, int seats) {
      this.tenant = tenant;
      this.seats = seats;
    }
  }

  /** The tenant's schema is set on a connection for as long as a session has it. */
  private static final class Tenants extends AbstractMultiTenantConnectionProvider<String> {
    private final HikariDataSource source;

    Tenants(HikariDataSource source) {
      this.source = source;
    }

    @Override
    public Connection getConnection(String tenant) throws SQLException {
      Connection connection = source.getConnection();
      execute(connection, "SET search_path TO " + tenant);
      return connection;
    }

    @Override
    public void releaseConnection(String tenant, Connection connection) throws SQLException {
      execute(connection, "SET search_path TO hibernate_none");
      connection.close();
    }

    @Override
    protected ConnectionProvider getAnyConnectionProvider() {
      return null;
    }

    @Override
    protected ConnectionProvider selectConnectionProvider(String tenant) {
      return null;
    }
  }

  private static final class Application implements AutoCloseable {
    final HikariDataSource source;
    final SessionFactory sessions;

    Application(URI uri) throws SQLException {
      HikariConfig pool = new HikariConfig();
      String options = "?sslmode=disable&readOnlyMode=always&options=-c%20statement_timeout=43s";
      pool.setJdbcUrl("jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath() + options);
      pool.setUsername(uri.getUserInfo());
      pool.setMaximumPoolSize(4);
      pool.setConnectionInitSql("SET lock_timeout = '31s'");
      pool.setTransactionIsolation("TRANSACTION_REPEATABLE_READ");
      source = new HikariDataSource(pool);
      try (Connection connection = source.getConnection()) {
        for (String tenant : TENANTS) {
          execute(connection, "DROP SCHEMA IF EXISTS " + tenant + " CASCADE");
          execute(connection, "CREATE SCHEMA " + tenant);
          execute(connection, "CREATE SEQUENCE " + tenant + ".booking_seq INCREMENT BY 20");
          String columns = " (id bigint PRIMARY KEY, tenant text, seats integer, version integer)";
          execute(connection, "CREATE TABLE " + tenant + ".booking" + columns);
        }
      }
      Configuration configuration = new Configuration().addAnnotatedClass(Booking.class);
      configuration.setProperty("hibernate.dialect", "org.hibernate.dialect.PostgreSQLDialect");
      configuration.setProperty("hibernate.boot.allow_jdbc_metadata_access", "false");
      configuration.setProperty("hibernate.jdbc.batch_size", "10");
      configuration.getProperties().put("hibernate.multi_tenant_connection_provider", new Tenants(source));
      sessions = configuration.buildSessionFactory();
    }

    Session open(String tenant) {
      return sessions.withOptions().tenantIdentifier((Object) tenant).openSession();
    }

    @Override
    public void close() {
      sessions.close();
      source.close();
    }
  }

  private interface Work<T> {
    T run(int thread) throws Exception;
  }

  private static <T> List<T> inThreads(Work<T> work) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    List<Future<T>> results = new ArrayList<>();
    for (int thread = 0; thread < THREADS; thread++) {
      int number = thread;
      results.add(threads.submit(() -> work.run(number)));
    }
    List<T> values = new ArrayList<>();
    for (Future<T> result : results) {
      values.add(result.get());
    }
    threads.shutdown();
    return values;
  }

  private static void equal(Object found, Object wanted) {
    if (!Objects.equals(found, wanted)) {
      throw new AssertionError(found + " instead of " + wanted);
    }
  }

  private static void execute(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(sql);
    }
  }

  private static String show(Connection connection, String... names) throws SQLException {
    List<String> values = new ArrayList<>();
    for (String name : names) {
      try (Statement statement = connection.createStatement();
          ResultSet rows = statement.executeQuery("SHOW " + name)) {
        rows.next();
        values.add(rows.getString(1));
      }
    }
    return String.join(" ", values);
  }

  // --- the scenarios ------------------------------------------------------------------------------------------

  /** Batches of inserts by a sequence for several rows, and the same questions for every tenant, prepared on the server. */
  private static void tenants(Application application) throws Exception {
    inThreads(
        thread -> {
          for (int turn = 0; turn < 16; turn++) {
            String tenant = TENANTS.get((thread + turn) % TENANTS.size());
            try (Session session = application.open(tenant)) {
              session.beginTransaction();
              // First, so that a thread has its server before it waits for another one that fetches numbers of the sequence.
              String strangers = "select count(*) from Booking where tenant <> :tenant";
              Long count = session.createQuery(strangers, Long.class).setParameter("tenant", tenant).getSingleResult();
              equal(count, 0L);
              for (int row = 0; row < 25; row++) {
                session.persist(new Booking(tenant, turn));
              }
              session.getTransaction().commit();
            }
          }
          return thread;
        });
    for (String tenant : TENANTS) {
      try (Session session = application.open(tenant)) {
        String sums = "select count(*), count(distinct id), sum(seats), min(tenant), max(tenant) from Booking";
        System.out.println(List.of(session.createQuery(sums, Object[].class).getSingleResult()));
      }
    }
  }

  /** What is set when a connection is opened holds for all that use it; the isolation that one of them sets is reset by the pool. */
  private static void settings(Application application) throws Exception {
    String[] names = {"statement_timeout", "lock_timeout", "search_path", "transaction_isolation", "transaction_read_only"};
    inThreads(
        thread -> {
          for (int turn = 0; turn < 10; turn++) {
            try (Connection connection = application.source.getConnection()) {
              connection.setSchema("hibernate_x");
              equal(show(connection, names), "43s 31s hibernate_x repeatable read off");
              connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
              equal(show(connection, names), "43s 31s hibernate_x serializable off");
              connection.setAutoCommit(false);
              execute(connection, "SET LOCAL statement_timeout = '1h'");
              equal(show(connection, names), "1h 31s hibernate_x serializable off");
              connection.rollback();
              equal(show(connection, names), "43s 31s hibernate_x serializable off");
              connection.rollback();
            }
          }
          return thread;
        });
    try (Connection connection = application.source.getConnection()) {
      connection.setSchema("hibernate_y");
      System.out.println(show(connection, names));
      execute(connection, "RESET statement_timeout");
      System.out.println(show(connection, names));
    }
  }

  /** Readers whose connection is READ ONLY for all its transactions, beside writers of the same pool. */
  private static void readonly(Application application) throws Exception {
    List<String> refusals =
        inThreads(
            thread -> {
              String state = null;
              String tenant = TENANTS.get(0);
              for (int turn = 0; turn < 10; turn++) {
                try (Session session = application.open(tenant)) {
                  if ((thread + turn) % 2 == 0) {
                    session.beginTransaction();
                    session.persist(new Booking(tenant, 1000));
                    session.getTransaction().commit();
                    continue;
                  }
                  // Held from here to the end of the transaction.
                  session.doWork(connection -> connection.setReadOnly(true));
                  session.beginTransaction();
                  equal(session.doReturningWork(connection -> show(connection, "transaction_read_only")), "on");
                  session.createQuery("select count(*) from Booking", Long.class).getSingleResult();
                  state = session.doReturningWork(Check::refusedToWrite);
                  session.getTransaction().rollback();
                }
              }
              return state;
            });
    System.out.println(refusals);
    try (Session session = application.open(TENANTS.get(0))) {
      String written = "select count(*) from Booking where seats = 1000";
      System.out.println(session.createQuery(written, Long.class).getSingleResult());
    }
  }

  private static String refusedToWrite(Connection connection) throws SQLException {
    try {
      execute(connection, "DELETE FROM booking");
      return "not refused";
    } catch (SQLException refusal) {
      return refusal.getSQLState();
    }
  }

  /** Pessimistic locks leave no update out; of two that change the same version the second is refused. */
  private static void locks(Application application) throws Exception {
    String tenant = TENANTS.get(1);
    Long id;
    try (Session session = application.open(tenant)) {
      Booking booking = new Booking(tenant, 0);
      session.beginTransaction();
      session.persist(booking);
      session.getTransaction().commit();
      id = booking.id;
    }
    inThreads(
        thread -> {
          for (int turn = 0; turn < 10; turn++) {
            try (Session session = application.open(tenant)) {
              session.doWork(connection -> connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED));
              session.beginTransaction();
              Booking booking = session.find(Booking.class, id, LockModeType.PESSIMISTIC_WRITE);
              booking.seats++;
              session.getTransaction().commit();
            }
          }
          return thread;
        });
    Booking stale;
    try (Session session = application.open(tenant)) {
      stale = session.find(Booking.class, id);
      System.out.println(stale.seats + " " + stale.version);
    }
    try (Session session = application.open(tenant)) {
      session.beginTransaction();
      session.find(Booking.class, id).seats = 7;
      session.getTransaction().commit();
    }
    try (Session session = application.open(tenant)) {
      session.beginTransaction();
      stale.seats = 8;
      session.merge(stale);
      session.getTransaction().commit();
      System.out.println("not refused");
    } catch (OptimisticLockException refusal) {
      System.out.println(refusal.getClass().getSimpleName());
    }
  }

  /** Rows that are fetched piece by piece from a portal, with other statements on the connection in between. */
  private static void scroll(Application application) throws Exception {
    List<Map<String, Integer>> results =
        inThreads(
            thread -> {
              Map<String, Integer> counts = new TreeMap<>();
              String tenant = TENANTS.get(2 + thread % 2);
              try (Session session = application.open(tenant)) {
                session.beginTransaction();
                var query = session.createQuery("from Booking order by id", Booking.class).setFetchSize(30).setReadOnly(true);
                try (ScrollableResults<Booking> rows = query.scroll(ScrollMode.FORWARD_ONLY)) {
                  while (rows.next()) {
                    Booking booking = rows.get();
                    int count = counts.merge(booking.tenant, 1, Integer::sum);
                    if (count % 50 == 0) {
                      equal(session.doReturningWork(connection -> show(connection, "search_path")), tenant);
                    }
                  }
                }
                session.getTransaction().commit();
              }
              return counts;
            });
    System.out.println(results);
  }
}
