-- verb: read beside
-- what: returns what stands in keys of any type, as far as it is not too much
-- request
--   beside    JSON: a list of keys
--   most      how many entries of a key are returned
--   longest   how many bytes of a text are returned
-- reply
--   done   {values: [type, how many entries or bytes it has, entries]…}: of a hash, and of a sorted set, names and values
--          in turn; of a string, one entry

--@include envelope
--@include bounded

local most, longest = tonumber(request.most), tonumber(request.longest)

local SIZES = {string = 'STRLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD', hash = 'HLEN'}

local READS = {
  string = function(key) return {redis.call('GETRANGE', key, 0, longest - 1)} end,
  list = function(key) return redis.call('LRANGE', key, 0, most - 1) end,
  set = function(key) return redis.call('SSCAN', key, 0, 'COUNT', most)[2] end,
  zset = function(key) return redis.call('ZRANGE', key, 0, most - 1, 'WITHSCORES') end,
  hash = function(key) return redis.call('HSCAN', key, 0, 'COUNT', most)[2] end,
}

local function read(key)
  local kind = redis.call('TYPE', key).ok
  if not SIZES[kind] then return {kind, 0, {}} end
  local entries, last = READS[kind](key), (kind == 'zset' or kind == 'hash') and 2 * most or most
  for i, text in ipairs(entries) do entries[i] = i <= last and bounded(text, longest) or nil end
  return {kind, redis.call(SIZES[kind], key), entries}
end

local values = {}
for i, key in ipairs(cjson.decode(request.beside)) do values[i] = read(key) end
return answer('done', {values = values})
