-- Signaling: a job waits for a signal, which another program sends: a name, with a value. It is sent to a job, or to all jobs
-- of a flow, and is never used up: who sends another one of that name is refused, and a job that asks again gets the same.
--
-- A job has in its hash `_signals`: JSON, the value of each name, as JSON, behind '?' until the job has asked for it, or has
-- been put in its queue because of it; or '!' if the job waited for it in vain; or '^' if it got the one of its flow. While it
-- waits, it is delayed until its deadline, if any, else until the end of all dates, and `_waits` has the deadline, 'signal' and
-- the name, since when, as seconds of the epoch, and by which claim, in four lines: it is parked, as in flows.lua. The lines stay until it
-- has an answer, so that the deadline stays if the job is put in its queue by hand. A job that waits for the children that
-- it spawned has 'children' and the id of their flow there. A flow has two keys more:
--   :signals   hash: of names, the value, as JSON, behind '?' until a job has asked for it
--   :waiters   sorted set, all scores 0: name and number of each node that waits, in two lines; some do so no more

--@include claims
--@include flows

local IN_VAIN, UNASKED, OF_FLOW = '!', '?', '^'

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

-- The value of a stored signal, and whether no job has asked for it yet.
--@rarely
local function value_in(stored)
  local is_unasked = stored and string.sub(stored, 1, 1) == UNASKED
  return is_unasked and string.sub(stored, 2) or stored, is_unasked
end

-- The signal that a text names which says what a job waits for; nil if it waits for something else.
--@rarely
local function signal_in(what)
  return string.match(what, '^signal (.*)$')
end

-- Whether what a running job is about to wait for is there.
--@rarely
local function has_come(job, what, signals)
  local name = signal_in(what)
  local own = name and signals_of(signals)[name]
  if name then return own and own ~= OF_FLOW or signal_of_flow(claim_of(job)._flow, name) ~= nil end
  local flow = string.match(what, '^children (%S+)$')
  local state = flow and redis.pcall('HGET', FLOW .. flow, 'state')
  return state ~= 'running' and state ~= 'held'
end

-- When a running job that is about to wait is due, as due_at does; nil if it is to go on at once, as it need not wait. If
-- `_waits` says something else, as another wait of its code, or another program, wrote it, that has to be changed: else the job
-- would run again and again.
--@rarely
local function due_of_wait(job, what, changes, token)
  local waits, signals = unpack(redis.call('HMGET', job.key, '_waits', '_signals'))
  if has_come(job, what, signals) then return nil end
  local text = wait_for(waits, what)
  if text ~= '' and not parse_date(text) then
    text = string.match(waits or '', '^[^\n]*')
    if not parse_date(text) then text = '' end
    changes._waits = waits_of(text, what, nil, token)
  end
  if text == '' then text = LAST_DATE end
  return {at = parse_date(text), text = text}
end

-- Notes that a node waits for a signal, as it may be sent to the flow.
--@rarely
local function note_waiter(text, what)
  local node, name = parse_flow(text), signal_in(what)
  if node and name then redis.pcall('ZADD', FLOW .. node.flow .. ':waiters', 0, name .. '\n' .. node.number) end
end

-- The name of another signal that some node of a flow waits for; nil if there is none.
--@rarely
local function other_waited_for(flow, name)
  local entries = redis.call('ZRANGE', FLOW .. flow .. ':waiters', 0, MOST_DEPENDENTS)
  for _, entry in ipairs(entries) do
    local other, number = string.match(entry, '^(.*)\n(%d+)$')
    local node = other and other ~= name and node_of(flow, number)
    if node and node.is_parked and node.kind == 'signal ' .. other then return other end
  end
end

-- Puts a node in its queue if it waits for a signal of its flow, which counts for it from then on.
--@rarely
local function place_waiter(node, name)
  local signals = signals_of(redis.call('HGET', node.key, '_signals'))
  signals[name] = OF_FLOW
  return place_if_it_waits(node, 'signal ' .. name, {_signals = cjson.encode(signals)})
end

-- Puts some of the nodes that wait for a signal of their flow in their queues, unless it was taken back; returns whether there
-- are more, and how many it put there.
--@rarely
local function place_waiters(flow, name)
  local key, signals = FLOW .. flow .. ':waiters', FLOW .. flow .. ':signals'
  local value = value_in(redis.call('HGET', signals, name))
  if not value then return false, 0 end
  local entries = redis.call('ZRANGEBYLEX', key, '[' .. name .. '\n', '(' .. name .. '\v', 'LIMIT', 0, MOST_DEPENDENTS)
  local number = 0
  for _, entry in ipairs(entries) do
    local node = node_of(flow, string.match(entry, '[^\n]*$'))
    local is_done, is_placed = pcall(place_waiter, node, name)  -- it fails if the node is gone
    if is_done and is_placed then number = number + 1 end
  end
  if number > 0 then redis.call('HSET', signals, name, value) end
  if entries[1] then redis.call('ZREM', key, unpack(entries)) end
  return #entries == MOST_DEPENDENTS, number
end
