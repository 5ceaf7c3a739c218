-- Presences: the records of those who are there, and of those who are not any more. A sorted set has the pks, by when
-- they end.

--@include leases
--@include bounded

-- How many records one call deletes at most.
local MAX_SWEPT = 100

-- A model whose records are deleted without their orders. These expire by themselves: a process that was only stopped
-- gives a sign of life later, and obeys them.
local function sparing_orders(model)
  local keys = {}
  for _, field in ipairs(model.keys or NOTHING) do
    if field ~= 'orders' then keys[#keys + 1] = field end
  end
  return setmetatable({keys = keys}, {__index = model})
end

-- Of the workers that ended, so many are noted, each for a day after the last one.
local ENDED, MAX_ENDED, ENDED_KEPT = 'limpyd-jobs:ended-workers', 200, 86400

-- What is kept of what a worker said of itself.
local KEPT = {'id', 'queues', 'queue_model', 'done', 'failed', 'memory', 'versions', 'parent'}

local function kept_details(text)
  local is_json, told = pcall(cjson.decode, text)
  local kept = {running = 0}
  if not is_json or type(told) ~= 'table' then return '{}' end
  for _, name in ipairs(KEPT) do kept[name] = told[name] end
  if type(told.running) == 'table' then kept.running = #told.running end
  local is_plain, shown = pcall(cjson.encode, kept)
  return is_plain and #shown <= LONGEST_NAME and shown or '{}'
end

local function add_note(words)
  redis.pcall('XADD', ENDED, 'MAXLEN', MAX_ENDED, '*', unpack(words))
  redis.pcall('EXPIRE', ENDED, ENDED_KEPT)
end

-- Notes that a worker ended, and how: nothing else of it stays. A note is not worth a failure.
local function note_end(leases, model, pk, how)
  local key, ends = hash_key(model, pk), redis.pcall('ZSCORE', leases, pk)
  if redis.pcall('HGET', key, 'kind') ~= 'worker' then return end
  local words = {'how', how, 'until', type(ends) == 'string' and ends or ''}
  for _, name in ipairs({'name', 'host', 'pid', 'since', '_lease'}) do
    words[#words + 1], words[#words + 2] = name, bounded(redis.pcall('HGET', key, name) or '', LONGEST_NAME)
  end
  words[#words + 1], words[#words + 2] = 'details', kept_details(redis.pcall('HGET', key, 'details'))
  add_note(words)
end

-- Deletes records of those who are not there any more; returns how many ended. A record that cannot be deleted is left
-- to the check, and a key of a wrong type counts as empty.
local function sweep(key, model)
  local ended = redis.pcall('ZRANGEBYSCORE', key, '-inf', score(now()), 'LIMIT', 0, MAX_SWEPT)
  local spared = #ended > 0 and sparing_orders(model)
  for _, pk in ipairs(ended) do
    note_end(key, model, pk, 'silent')
    pcall(delete_record, spared, pk)
    redis.call('ZREM', key, pk)
  end
  return #ended
end
