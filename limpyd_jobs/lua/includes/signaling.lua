-- Signaling: a job waits for a signal, which another program sends: a name, with a value. It is sent to a job, or to all jobs
-- of a flow, and is never used up: who sends another one of that name is refused, and a job that asks again gets the same.
--
-- A job has in its hash `_signals`: JSON, the value of each name, as JSON; or '!' if the job waited for it in vain. While it
-- waits, it is delayed until its deadline, if any, else until the end of all dates, and `_waits` has that date, 'signal' and
-- the name, and since when, as seconds of the epoch, in three lines: it is parked, as in flows.lua. The lines stay until it has an answer, so that the
-- deadline stays if the job is put in its queue by hand. A flow has two keys more:
--   :signals   hash: of names, the value, as JSON
--   :waiters   sorted set, all scores 0: name and number of each node that waits, in two lines; some do so no more

--@include claims
--@include flows

local IN_VAIN = '!'

-- How many bytes all signals of a job have at most, and how many signals a flow has at most.
local MOST_TEXT, MOST_SIGNALS = 262144, 1000

-- The signals of a job. What is none counts as nothing: another program wrote it.
--@rarely
local function signals_of(text)
  local ok, stored = pcall(cjson.decode, text or '{}')
  local found = {}
  for name, value in pairs(ok and type(stored) == 'table' and stored or found) do
    if type(name) == 'string' and type(value) == 'string' then found[name] = value end
  end
  return found
end

-- The signal of the flow of a job; nil if there is none.
--@rarely
local function signal_of_flow(text, name)
  local node = text and parse_flow(text)
  local value = node and redis.pcall('HGET', FLOW .. node.flow .. ':signals', name)
  return type(value) == 'string' and value or nil
end

-- Until when a job waits for a signal, as text, given its `_waits`; and since when. nil if it does not.
--@rarely
local function wait_for_signal(waits, name)
  local date, own_name, since = string.match(waits or '', '^([^\n]*)\nsignal ([^\n]*)\n([^\n]*)$')
  if own_name == name then return date, since end
end

-- When a running job that will wait for a signal is due, as due_at does; nil if it is to go on at once, as it has the signal.
--@rarely
local function due_of_signal(job, name)
  local waits, text = unpack(redis.call('HMGET', job.key, '_waits', '_signals'))
  local at = parse_date((wait_for_signal(waits, name)))
  if not at or signals_of(text)[name] or signal_of_flow(claim_of(job)._flow, name) then return nil end
  return {at = at, text = (wait_for_signal(waits, name))}
end

-- Notes that a node waits for a signal, as it may be sent to the flow.
--@rarely
local function note_waiter(text, name)
  local node = parse_flow(text)
  if node then redis.pcall('ZADD', FLOW .. node.flow .. ':waiters', 0, name .. '\n' .. node.number) end
end

-- Puts a job in its queue if it waits for a signal, with other changes. Returns whether it did.
--@rarely
local function place_if_it_waits(job, name, changes)
  local status, queued, token, waits, delayed_until, base, flow = unpack(redis.call(
    'HMGET', job.key, 'status', 'queued', '_claim_token', '_waits', 'delayed_until', '_queue_key', '_flow'))
  local is_waiting = queued == '1' and not token and base and is_parked(status, delayed_until, waits)
  if not is_waiting or not wait_for_signal(waits, name) then return false end
  local known = {status = status, queued = queued, _flow = flow, _unique_for = false}
  let_run({model = job.model, pk = job.pk, ident = job.ident, base = base, known = known}, changes)
  return true
end

-- Puts some of the nodes that wait for a signal of their flow in their queues; returns whether there are more, and how many
-- it put there.
--@rarely
local function place_waiters(flow, name)
  local key = FLOW .. flow .. ':waiters'
  local entries = redis.call('ZRANGEBYLEX', key, '[' .. name .. '\n', '(' .. name .. '\v', 'LIMIT', 0, MOST_DEPENDENTS)
  local number = 0
  for _, entry in ipairs(entries) do
    local node = node_of(flow, string.match(entry, '[^\n]*$'))
    local is_done, is_placed = pcall(place_if_it_waits, node, name)  -- it fails if the node is gone
    if is_done and is_placed then number = number + 1 end
  end
  if entries[1] then redis.call('ZREM', key, unpack(entries)) end
  return #entries == MOST_DEPENDENTS, number
end
