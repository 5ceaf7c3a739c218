-- verb: end entry
-- what: writes to the audit what was done in the end
-- request
--   entry       the token of an entry that was begun
--   audit       the entry, without the moment when it was begun
--   unaudited
-- reply
--   done

--@include envelope
--@include audit

local values, begun = cjson.decode(request.audit), entry_of(redis.call('HGET', BEGUN, request.entry))
if begun then
  values[#values + 1] = 'begun'
  values[#values + 1] = begun.begun
end
write_entry(cjson.encode(values))
redis.call('HDEL', BEGUN, request.entry)
return answer('done')
