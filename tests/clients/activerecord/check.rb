# Ruby on Rails' ActiveRecord: check.rb [SCENARIO...] URI runs it and prints what it got, which is the same whichever way it has to
# PostgreSQL. At connect ActiveRecord sets client_min_messages, search_path, standard_conforming_strings, intervalstyle, the time
# zone and the variables of its configuration by SET, and reads the catalog of types; it prepares statements a1, a2, ... and keeps
# them, and holds an advisory lock while it migrates. Started by tests/e2e/test_applications.py; --list names the scenarios.

require "logger"
require "uri"
require "active_record"

SCENARIOS = %w[migrate settings statements transactions].freeze
THREADS = 6
ActiveRecord::Migration.verbose = false

class Account < ActiveRecord::Base
  has_many :entries
end

class Entry < ActiveRecord::Base
  belongs_to :account
  attribute :due, :interval
end

class CreateAccounts < ActiveRecord::Migration[6.1]
  def change
    create_table(:accounts) { |t| t.string :owner, null: false; t.integer :balance, null: false, default: 0; t.timestamps }
    create_table(:entries) { |t| t.references :account, foreign_key: true; t.integer :amount; t.interval :due; t.jsonb :notes }
    add_index :accounts, :owner, unique: true
  end
end

# While it runs, another process that migrates is refused: the lock is held, and on a connection that is not this one.
class AddRegion < ActiveRecord::Migration[6.1]
  def up
    add_column :accounts, :region, :string, default: "north"
    Thread.new do
      migrate_to([AddRegion.new("AddRegion", 2)], 2)
      puts "not refused"
    rescue ActiveRecord::ConcurrentMigrationError => refusal
      puts refusal.class
    ensure
      ActiveRecord::Base.clear_active_connections!
    end.join
  end
end

def migrate_to(migrations, version)
  ActiveRecord::Migrator.new(:up, migrations, ActiveRecord::SchemaMigration, version).migrate
end

def establish(uri)
  address = URI(uri)
  ActiveRecord::Base.establish_connection(
    adapter: "postgresql", host: address.host, port: address.port, username: address.user, database: address.path[1..],
    sslmode: "disable", gssencmode: "disable", pool: 4, checkout_timeout: 30, schema_search_path: "rails,public", min_messages: "warning",
    variables: { statement_timeout: "42s", lock_timeout: 41_000, default_transaction_isolation: "repeatable read" }
  )
end

def in_threads(count = THREADS)
  threads = Array.new(count) do |number|
    Thread.new do
      Thread.current.report_on_exception = false
      ActiveRecord::Base.connection_pool.with_connection { yield number }
    end
  end
  threads.map(&:value)
end

def show(name)
  ActiveRecord::Base.connection.select_value("SHOW #{name}")
end

# --- the scenarios -------------------------------------------------------------------------------------------------------
def run_migrate
  connection = ActiveRecord::Base.connection
  connection.execute("DROP SCHEMA IF EXISTS rails CASCADE")
  connection.execute("CREATE SCHEMA rails")
  migrations = [CreateAccounts.new("CreateAccounts", 1), AddRegion.new("AddRegion", 2)]
  ActiveRecord::SchemaMigration.create_table
  ActiveRecord::InternalMetadata.create_table
  migrate_to(migrations, 1)
  # Statements are prepared before a migration changes what their rows are.
  in_threads { |number| Account.create!(owner: "owner #{number}", balance: 100); Account.find_by!(owner: "owner #{number}") }
  migrate_to(migrations, 2)
  Account.reset_column_information
  puts Account.column_names.inspect, Account.connection.indexes(:accounts).map(&:name).inspect
  puts in_threads { |number| Account.find_by!(owner: "owner #{number}").region }.inspect
  puts connection.select_value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
  puts ActiveRecord::SchemaMigration.all_versions.inspect
end

# What is set at connect holds in every transaction, and what a thread sets and resets is its own.
def run_settings
  names = %w[client_min_messages search_path standard_conforming_strings intervalstyle timezone statement_timeout lock_timeout transaction_isolation]
  puts in_threads { Array.new(3) { names.map { |name| show(name) } }.uniq }.uniq.inspect
  in_threads do |number|
    connection = ActiveRecord::Base.connection
    10.times do |turn|
      connection.execute("SET statement_timeout = #{50_001 + number}")
      connection.transaction { connection.execute("SET LOCAL lock_timeout = #{turn + 1}") }
      found = [show("statement_timeout"), show("lock_timeout")]
      raise found.inspect unless found == ["#{50_001 + number}ms", "41s"]
      connection.execute("RESET statement_timeout")
      connection.execute("SET statement_timeout TO '42s'")
    end
    connection.reset! # ROLLBACK and DISCARD ALL, then all of it again
    raise show("statement_timeout") unless show("statement_timeout") == "42s"
    connection.schema_search_path = "public"
    raise "found" if connection.table_exists?("accounts")
    connection.schema_search_path = "rails,public"
    raise "not found" unless connection.table_exists?("accounts")
    connection.client_min_messages = "error"
  end
  ActiveRecord::Base.clear_all_connections!
  puts show("client_min_messages"), show("search_path")
end

# More statements than a connection keeps, under the same names on each.
def run_statements
  counts = in_threads do |number|
    account = Account.find_by!(owner: "owner #{number}")
    (1..30).map do |turn|
      entry = account.entries.create!(amount: turn, due: turn.hours, notes: { thread: number })
      found = Entry.where(account_id: account.id).where("amount > ?", turn - 2).order(:id).pluck(:amount)
      Entry.find(entry.id).due.in_hours.to_i + found.length + Entry.where(amount: [turn, turn + 1], account: account).limit(turn).count
    end.sum
  end
  puts counts.inspect
  puts Entry.group(:amount).having("count(*) > 1").count.values.uniq.inspect
  puts Account.find_each(batch_size: 2).map(&:owner).sort.inspect
end

# Locks of rows, savepoints and what fails in them.
def run_transactions
  in_threads do |number|
    10.times do |turn|
      Account.transaction(isolation: :read_committed) do
        pair = [number, (number + turn + 1) % THREADS].uniq.map { |one| "owner #{one}" }
        accounts = Account.where(owner: pair).order(:id).lock.to_a
        accounts.first.update!(balance: accounts.first.balance - turn)
        accounts.last.update!(balance: accounts.last.balance + turn)
        Account.transaction(requires_new: true) { Account.create!(owner: "owner 0") }
      rescue ActiveRecord::RecordNotUnique
        Account.where(owner: pair.first).count
      end
    end
  end
  puts Account.sum(:balance), Account.count
  Account.transaction do
    Account.update_all(balance: 0)
    raise ActiveRecord::Rollback
  end
  puts Account.sum(:balance)
end

if ARGV == ["--list"]
  puts SCENARIOS
else
  *names, uri = ARGV
  establish(uri)
  (names.empty? ? SCENARIOS : names).each do |name|
    puts "--- #{name}"
    send("run_#{name}")
  end
end
