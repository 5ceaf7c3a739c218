-- verb: check records
-- what: looks at some records, or puts them right: hash, collection, indexes, values
-- request
--   model, pks, repair
--   names      of the hash fields, as JSON
--   integers   fields that hold an integer, as JSON: {field: value if it holds something else}
-- reply
--   done   {problems, live}
--     problems   {pk, problem, field or '', value}…
--     live       {pk, status or '', identifier or '', '1' if it cannot be so or ''}… of the jobs that are live, queued
--                or claimed

--@include records
--@include text

local model, repairs = model_of(request.model), request.repair
local names, integers = cjson.decode(request.names), cjson.decode(request.integers)
local collection = model.name .. ':collection'
local problems, live = {}, {}

local function report(pk, problem, field, value)
  problems[#problems + 1] = {pk, problem, field or '', value or ''}
end

local function drop(pk, key)
  if repairs then
    redis.call('SREM', collection, pk)
    redis.call('UNLINK', key)
  end
end

local function set(pk, field, value)
  if repairs then update(model, pk, {[field] = value}) end
end

local function is_integer(value)
  return string.find(value, '^[+-]?%d+$') and #value <= 21
end

local function look_at_value(pk, field, value)
  local proper = as_text(value)
  if proper ~= value then
    report(pk, 'not text', field, proper)
    set(pk, field, proper)
  elseif integers[field] and not is_integer(value) then
    report(pk, 'no integer', field, value)
    proper = integers[field]
    set(pk, field, proper)
  end
  for _, prefix in ipairs(model.indexes[field] or {}) do
    -- there is an error if the key is not a set: see stale_index_entries.lua
    if redis.pcall('SISMEMBER', prefix .. (repairs and proper or value), pk) ~= 1 then
      report(pk, 'not indexed', field, value)
      if repairs then redis.call('SADD', prefix .. proper, pk) end
    end
  end
  for _, key in ipairs(model.ranges[field] or {}) do
    local wanted, found = score_in(model, key, repairs and proper or value), redis.pcall('ZSCORE', key, pk)
    if not wanted then
      if type(found) == 'string' then
        report(pk, 'stale entry', field, value)
        if repairs then redis.call('ZREM', key, pk) end
      end
    elseif type(found) ~= 'string' or tonumber(found) ~= tonumber(wanted) then
      report(pk, 'not indexed', field, value)
      if repairs then redis.call('ZADD', key, wanted, pk) end
    end
  end
end

local function look_at_state(pk, key)
  local status, identifier, queued, token, queue_key = unpack(redis.call(
    'HMGET', key, 'status', 'identifier', 'queued', '_claim_token', '_queue_key'))
  status = status or ''
  local is_queued, is_claimed = queued == '1', token ~= false
  local waits, runs = status == STATUSES.WAITING or status == STATUSES.DELAYED, status == STATUSES.RUNNING
  local has_ended = status == STATUSES.SUCCESS or status == STATUSES.ERROR or status == STATUSES.CANCELED
  if not (waits or runs) and (has_ended or status == '') and not queued and not is_claimed then
    return
  end
  local is_lost = queue_key and redis.call('EXISTS', queue_key .. ':hash') == 0
  local is_fine = is_queued and not is_lost and (runs or waits and not is_claimed)
  live[#live + 1] = {pk, status, identifier or '', is_fine and '' or '1'}
end

-- Whether a hash has only fields that version 2 does not know, and so leaves there when it deletes a record.
local function is_left_over(key)
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 1) ~= '_' then return false end
  end
  return true
end

local function look_at(pk)
  local key = hash_key(model, pk)
  local kind, is_listed = redis.call('TYPE', key).ok, redis.pcall('SISMEMBER', collection, pk) == 1
  if kind ~= 'hash' then
    if kind ~= 'none' or is_listed then
      report(pk, kind == 'none' and 'no hash' or 'not a hash', '', kind)
      drop(pk, key)
    end
    return
  end
  if not is_listed and is_left_over(key) then
    report(pk, 'left over')
    if repairs then
      remove_from_indexes(model, pk)
      redis.call('UNLINK', key)
    end
    return
  elseif not is_listed then
    report(pk, 'not in the collection')
    if repairs then redis.call('SADD', collection, pk) end
  end
  local values = redis.call('HMGET', key, unpack(names))
  for i, field in ipairs(names) do
    if values[i] then look_at_value(pk, field, values[i]) end
  end
  if model.path then look_at_state(pk, key) end
end

for _, pk in ipairs(cjson.decode(request.pks)) do
  local ok, failure = pcall(look_at, pk)
  if not ok then
    report(pk, 'unreadable', '', type(failure) == 'table' and failure.err or tostring(failure))
  end
end
return answer('done', {problems = problems, live = live})
