-- verb: last entries
-- what: returns the last entries of the audit, and those that have not ended
-- KEYS[1]  stream of the audit
-- request
--   most   how many of the stream are returned
-- reply
--   done   {moment: seconds since the epoch, ended: [id, [field, value…]]…, begun: JSON of an entry…}

--@include envelope
--@include bounded

-- A long entry of ours has some thousand bytes, most of which are escapes of its filter.
local LONGEST_TEXT, MOST_TEXTS, MOST_BEGUN = 30000, 40, 200

local ended, begun = redis.pcall('XREVRANGE', KEYS[1], '+', '-', 'COUNT', request.most), {}
if ended.err then ended = {} end
for _, entry in ipairs(ended) do
  local _, texts = unpack(entry)
  for i, text in ipairs(texts) do texts[i] = i <= MOST_TEXTS and bounded(text, LONGEST_TEXT) or nil end
end
local tokens = redis.pcall('HKEYS', KEYS[1] .. ':begun')
for i = 1, tokens.err and 0 or math.min(#tokens, MOST_BEGUN) do
  if redis.call('HSTRLEN', KEYS[1] .. ':begun', tokens[i]) <= 4 * LONGEST_TEXT then
    begun[#begun + 1] = redis.call('HGET', KEYS[1] .. ':begun', tokens[i])
  end
end
return answer('done', {moment = redis.call('TIME')[1], ended = ended, begun = begun})
