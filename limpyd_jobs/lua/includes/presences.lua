-- Presences: the records of those who are there, and of those who are not any more. A sorted set has the pks, by when
-- they end.

--@include leases

-- How many records one call deletes at most.
local MAX_SWEPT = 100

-- Deletes records of those who are not there any more; returns how many ended. A record that cannot be deleted is left
-- to the check, and a key of a wrong type counts as empty.
local function sweep(key, model)
  local ended = redis.pcall('ZRANGEBYSCORE', key, '-inf', score(now()), 'LIMIT', 0, MAX_SWEPT)
  for _, pk in ipairs(ended) do
    pcall(delete_record, model, pk)
    redis.call('ZREM', key, pk)
  end
  return #ended
end
