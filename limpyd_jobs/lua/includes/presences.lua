-- Presences: the records of those who are there, and of those who are not any more. A sorted set has the pks, by when
-- they end.

--@include leases

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

-- Deletes records of those who are not there any more; returns how many ended. A record that cannot be deleted is left
-- to the check, and a key of a wrong type counts as empty.
local function sweep(key, model)
  local ended = redis.pcall('ZRANGEBYSCORE', key, '-inf', score(now()), 'LIMIT', 0, MAX_SWEPT)
  local spared = #ended > 0 and sparing_orders(model)
  for _, pk in ipairs(ended) do
    pcall(delete_record, spared, pk)
    redis.call('ZREM', key, pk)
  end
  return #ended
end
