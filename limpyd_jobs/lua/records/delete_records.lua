-- verb: delete records
-- what: as delete_record.lua, several
-- request
--   model, pks
-- reply
--   done   {number: how many there were}

--@include records

local model, number = model_of(request.model), 0

for _, pk in ipairs(cjson.decode(request.pks)) do
  number = number + delete_record(model, pk)
end
return answer('done', {number = number})
