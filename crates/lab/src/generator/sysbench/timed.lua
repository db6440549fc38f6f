-- Runs another script of sysbench and logs the time of each of its events, in the form of pgbench's log:
-- CLIENT EVENT TIME_US 0 EPOCH EPOCH_US [LAG_US]. sysbench itself keeps a histogram only, of the warm-up too.
--
-- WEIR_SCRIPT is the script, WEIR_LOG the beginning of the log's name; with WEIR_RATE each client begins this many events
-- a second, at random, whether or not earlier ones are done: their time counts from the moment at which they were due.
local ffi = require("ffi")
ffi.cdef [[
typedef struct { long s; long ns; } weir_time;
int weir_clock(int clock, weir_time *now) __asm__("clock_gettime");
int weir_sleep(int clock, int flags, const weir_time *until, weir_time *left) __asm__("clock_nanosleep");
]]
local REALTIME, MONOTONIC, ABSOLUTE = 0, 1, 1

local script = os.getenv("WEIR_SCRIPT")
if script:find("/") then
   package.path = script:match("^(.*/)") .. "?.lua;" .. package.path
   dofile(script)
else
   dofile(assert(package.searchpath(script, package.path)))
end

local inner_init, inner_event, inner_done = thread_init, event, thread_done
local rate = tonumber(os.getenv("WEIR_RATE"))
local time = ffi.new("weir_time")
local log, number, due = nil, 0, nil

local function now_us(clock)
   ffi.C.weir_clock(clock, time)
   return tonumber(time.s) * 1e6 + math.floor(tonumber(time.ns) / 1e3)
end

local function wait_until(us)
   time.s = math.floor(us / 1e6)
   time.ns = math.floor(us % 1e6) * 1000
   ffi.C.weir_sleep(MONOTONIC, ABSOLUTE, time, nil)
end

function thread_init(id)
   log = assert(io.open(os.getenv("WEIR_LOG") .. "." .. sysbench.tid, "w"))
   log:setvbuf("full", 65536)
   math.randomseed(now_us(REALTIME) % 1e9 + sysbench.tid * 7919)
   if inner_init then inner_init(id) end
   due = now_us(MONOTONIC)
end

-- The moment at which the event begins to count, and how late it is.
local function begin()
   local now = now_us(MONOTONIC)
   if not rate then return now, nil end
   if now < due then
      wait_until(due)
      now = now_us(MONOTONIC)
   end
   return due, now - due
end

function event(id)
   local began, lag = begin()
   local went, fault = pcall(inner_event, id)
   local took = went and string.format("%d", now_us(MONOTONIC) - began) or "failed"
   local ended = now_us(REALTIME)
   number = number + 1
   log:write(string.format("%d %d %s 0 %d %d", sysbench.tid, number, took, math.floor(ended / 1e6), ended % 1e6))
   log:write(lag and string.format(" %d\n", lag) or "\n")
   -- What sysbench repeats stays due; what it does not repeat ends it.
   if not went then error(fault, 0) end
   if rate then due = due - math.log(1 - math.random()) * 1e6 / rate end
end

function thread_done(id)
   if inner_done then inner_done(id) end
   log:close()
end
